"""fairseq's sampling, which draws with our noise: the reference of every test of samples."""

import math

import torch
from fairseq.search import Sampling
from fairseq.sequence_generator import SequenceGenerator

from specdec_plugin.decoding import noise


class NoisySampling(Sampling):
    """fairseq's search that samples with one beam, with our noise in place of ``multinomial``."""

    def __init__(self, symbols, settings, sample):
        super().__init__(symbols, settings.top_k or -1, settings.top_p or -1.0)
        self.settings, self.sample = settings, sample

    def step(self, step, lprobs, scores, prev_output_tokens=None, original_batch_idxs=None):
        numbers = original_batch_idxs + self.settings.offset
        keys = noise.row_keys(self.settings.seed, numbers, torch.full_like(numbers, self.sample))
        positions = torch.full((len(numbers), 1), step)
        noisy = left_by_fairseq(self, lprobs) + noise.gumbel(keys, positions, lprobs.size(2))
        tokens = noisy.argmax(2)
        found = lprobs.gather(2, tokens.unsqueeze(2)).squeeze(2)
        if step > 0:
            found = found + scores[:, :, step - 1]
        return found, tokens, torch.zeros_like(tokens)


def left_by_fairseq(search, lprobs):
    """(rows, 1, vocabulary) log-probabilities; -inf where fairseq's cut removes a symbol."""
    if search.sampling_topp > 0:
        probs, indices = search._sample_topp(lprobs.clone())
        kept = torch.zeros_like(lprobs).scatter_add(2, indices, probs) > 0
    elif search.sampling_topk > 0:
        indices = lprobs.topk(min(search.sampling_topk, lprobs.size(2))).indices
        kept = torch.zeros_like(lprobs).scatter(2, indices, 1.0) > 0
    else:
        return lprobs
    return lprobs.masked_fill(~kept, -math.inf)


def reference(models, symbols, sample, settings, prefix=None, **options):
    """For each sentence fairseq's samples, in the order of their numbers."""
    options = {"temperature": settings.temperature, **options}
    found = []
    for number in range(settings.samples):
        search = NoisySampling(symbols, settings, number)
        generator = SequenceGenerator(
            models, symbols, beam_size=1, search_strategy=search, **options
        )
        found.append([row[0] for row in generator.generate(models, sample, prefix_tokens=prefix)])
    return [list(samples) for samples in zip(*found, strict=True)]


def best_first(samples):
    """In the order of the scores, the greatest first."""
    return sorted(samples, key=lambda each: -float(each["score"]))
