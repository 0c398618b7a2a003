"""The file of ``--vocab-clusters``: clusters, and the model and dictionary that they belong to."""

from typing import Any, Dict, NamedTuple, Sequence

import torch
from torch import Tensor, nn

from ..errors import PluginError
from ..fairseq_compat.checkpoint_errors import explained
from ..fairseq_compat.checkpoints import save_whole
from ..fairseq_compat.pairing import fingerprint_of_dictionary, fingerprint_of_module
from .clusters import Clusters
from .packing import pack, unpack

#: The kind of file, and the version of its form.
KIND = "specdec_plugin vocabulary clusters, 2"
_FINGERPRINTS = ("decoder", "dictionary")
_COUNTS = ("vocabulary", "top_k", "neighbours")


class ClusterFile(NamedTuple):
    """What a file holds.

    Attributes:
        clusters: centroids and active tokens.
        top_k: K, how many of the likeliest tokens of each state are active.
        neighbours: in how many clusters they are: those nearest to the state.
        decoder: (1,) fingerprint of the decoder whose states were clustered.
        dictionary: (1,) fingerprint of the target dictionary.
        note: which states were clustered, such as ``en-es train, 1,000,000 states``.
    """

    clusters: Clusters
    top_k: int
    neighbours: int
    decoder: Tensor
    dictionary: Tensor
    note: str


def made_for(
    clusters: Clusters,
    top_k: int,
    decoder: nn.Module,
    dictionary: Any,
    note: str,
    neighbours: int = 1,
) -> ClusterFile:
    """A file for this decoder and this target dictionary."""
    fingerprints = fingerprint_of_module(decoder), fingerprint_of_dictionary(dictionary)
    return ClusterFile(clusters, top_k, neighbours, *fingerprints, note)


def save_clusters(file: ClusterFile, path: str) -> None:
    """Write a file that appears under its name only when it is whole.

    It has the fields of :class:`ClusterFile` and :class:`Clusters` by their names, the sets of
    tokens packed.
    """
    state = {"kind": KIND, **file._asdict(), **file.clusters._asdict()}
    state["tokens"] = pack(state.pop("offsets"), state["tokens"], state["vocabulary"])
    del state["clusters"]
    save_whole(state, path)


def load_clusters(path: str) -> ClusterFile:
    """Read a file; no code in it is run.

    Raises:
        PluginError: it is missing, truncated, of another kind, or contradicts itself.
    """
    with explained(path, "cluster file", "specdec-cluster-vocab"):
        state = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(state, dict) or state.get("kind") != KIND:
        raise PluginError(
            f"{path} holds no vocabulary clusters. Give a file that specdec-cluster-vocab wrote."
        )
    try:
        return _read(state)
    except (KeyError, ValueError) as error:
        raise PluginError(
            f"{path} is damaged: its vocabulary clusters contradict themselves ({error}). Make it "
            "again with specdec-cluster-vocab."
        ) from None


def _read(state: Dict[str, Any]) -> ClusterFile:
    counts = vocabulary, top_k, neighbours = [state[name] for name in _COUNTS]
    note = state["note"]
    if not (all(isinstance(each, int) for each in counts) and isinstance(note, str)):
        raise ValueError("numbers that are none")
    if not (0 < vocabulary < 2**31 and top_k > 0 and neighbours > 0):
        raise ValueError(f"{vocabulary} symbols, K = {top_k}, {neighbours} neighbours")
    centroids = _tensor(state, "centroids", torch.float16, 2)
    norms = _tensor(state, "norms", torch.float32, 1)
    count, dim = centroids.shape
    if count == 0 or dim == 0 or len(norms) != count:
        raise ValueError(f"{count} centroids, {len(norms)} norms")
    if not (centroids.isfinite().all() and norms.isfinite().all()):
        raise ValueError("infinite centroids")
    packed = _tensor(state, "tokens", torch.uint8, 1)
    offsets, tokens = unpack(packed, count, vocabulary)
    decoder, dictionary = (_tensor(state, name, torch.int64, 1) for name in _FINGERPRINTS)
    clusters = Clusters(centroids, norms, offsets, tokens, vocabulary)
    return ClusterFile(clusters, top_k, neighbours, decoder, dictionary, note)


def _tensor(state: Dict[str, Any], name: str, dtype: torch.dtype, axes: int) -> Tensor:
    """A plain tensor; one that repeats its memory could be larger than the machine's."""
    value = state[name]
    if not isinstance(value, Tensor) or value.dtype != dtype or value.dim() != axes:
        raise ValueError(f"its {name} are of another kind")
    if value.layout != torch.strided or not value.is_contiguous():
        raise ValueError(f"its {name} are not contiguous")
    return value


def check_clusters(
    path: str,
    file: ClusterFile,
    decoder: Any,
    dictionary: Any,
    flag: str,
    others: Sequence[nn.Module] = (),
) -> None:
    """Check that a file belongs to the target dictionary and the decoder in use.

    Args:
        path, flag: the file and the option that named it, for the message.
        file: what it holds.
        decoder: whose projection is to be clustered.
        dictionary: of the target.
        others: decoders whose states may have been clustered instead.

    Raises:
        PluginError: it was made for another dictionary or model.
    """
    if not torch.equal(file.dictionary, fingerprint_of_dictionary(dictionary)):
        raise PluginError(
            f"{flag} {path} was made with another target dictionary than the data's: the same "
            "numbers mean other symbols. Make clusters with the data folder in use "
            "(specdec-cluster-vocab)."
        )
    made_of = (fingerprint_of_module(each) for each in (decoder, *others))
    if not any(torch.equal(file.decoder, each) for each in made_of):
        raise PluginError(
            f"{flag} {path} was made for another checkpoint ({file.note}), whose states mean other "
            "tokens. Make clusters for this one with specdec-cluster-vocab, or give the "
            "checkpoint that it was made for."
        )
    projection, clusters = decoder.output_projection, file.clusters
    shape = clusters.vocabulary, clusters.centroids.size(1)
    if shape != tuple(projection.weight.shape):
        raise PluginError(
            f"{flag} {path} is about {shape[0]:,} symbols and states of {shape[1]:,} numbers, and "
            f"the decoder has {projection.out_features:,} and {projection.in_features:,}. Make "
            "clusters for this one with specdec-cluster-vocab."
        )
