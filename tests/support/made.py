"""Clusters made up at random."""

import itertools

import torch
from fairseq.data import Dictionary

from specdec_plugin.fairseq_compat.pairing import load_model
from specdec_plugin.vocab.cluster_file import made_for, save_clusters
from specdec_plugin.vocab.clusters import Clusters


def clusters(sets, dim, vocabulary, seed=0, scale=1.0):
    """Random centroids for these sets of tokens."""
    generator = torch.Generator().manual_seed(seed)
    centroids = (scale * torch.randn(len(sets), dim, generator=generator)).half()
    sizes = torch.tensor([len(each) for each in sets])
    offsets = torch.zeros(len(sets) + 1, dtype=torch.long)
    offsets[1:] = sizes.cumsum(0)
    tokens = torch.tensor([token for each in sets for token in sorted(each)], dtype=torch.int32)
    return Clusters(centroids, centroids.float().square().sum(1), offsets, tokens, vocabulary)


def random_clusters(count, dim, vocabulary, share, seed=0, always=(), never=(), scale=1.0):
    """Each symbol is active in each cluster with the probability ``share``."""
    generator = torch.Generator().manual_seed(seed + 1)
    active = torch.rand(count, vocabulary, generator=generator) < share
    active[:, list(always) or [0]] = True
    active[:, list(never)] = False
    sets = [row.nonzero().flatten().tolist() for row in active]
    return clusters(sets, dim, vocabulary, seed, scale)


def sets_of(found):
    """The token sets, as lists."""
    bounds = found.offsets.tolist()
    return [found.tokens[begin:end].tolist() for begin, end in itertools.pairwise(bounds)]


def file_for(corpus, checkpoint, path, share):
    """Writes made-up clusters for a checkpoint that was trained on the tiny corpus."""
    symbols = Dictionary.load(f"{corpus.data_dir}/dict.en.txt")
    decoder = load_model(checkpoint, symbols, symbols).decoder
    dim = decoder.output_projection.in_features
    found = random_clusters(6, dim, len(symbols), share, always=[2, 3], never=[1])
    save_clusters(made_for(found, 1, decoder, symbols, "made up"), str(path))
    return str(path)
