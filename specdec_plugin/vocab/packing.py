"""Sets of tokens in few bytes."""

from typing import Tuple

import numpy as np
import torch
from torch import Tensor

#: In a row of gaps, a byte that adds this much and names no token.
_FILLER = 255


def pack(offsets: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
    """The smaller of two forms.

    Gaps: a byte for each token says how far it is behind the one before, in one row for
    all clusters, a cluster's tokens being counted from ``cluster * vocabulary``. Bits: one
    for each symbol of each cluster.

    Args:
        offsets: (clusters + 1,) long; see :class:`..engine.clusters.Clusters`.
        tokens: (…,) int32.
        vocabulary: how many symbols there are.

    Returns:
        uint8, (…,) gaps or (clusters, ⌈vocabulary / 8⌉) bits.
    """
    gaps, clusters = _gaps(offsets, tokens, vocabulary), len(offsets) - 1
    width = (vocabulary + 7) // 8
    if len(gaps) <= clusters * width:
        return torch.from_numpy(gaps)
    bits = np.zeros((clusters, width), np.uint8)
    for cluster in range(clusters):
        active = np.zeros(vocabulary, np.bool_)
        active[tokens[offsets[cluster] : offsets[cluster + 1]].numpy()] = True
        bits[cluster] = np.packbits(active)
    return torch.from_numpy(bits)


def unpack(packed: Tensor, clusters: int, vocabulary: int) -> Tuple[Tensor, Tensor]:
    """What was packed.

    Args:
        packed: from :func:`pack`.
        clusters: how many there are.
        vocabulary: how many symbols there are.

    Returns:
        (clusters + 1,) long offsets and (…,) int32 tokens.

    Raises:
        ValueError: these are not so many sets of tokens.
    """
    if packed.dim() == 2:
        if packed.shape != (clusters, (vocabulary + 7) // 8):
            raise ValueError(f"{tuple(packed.shape)} bits")
        rows = [np.flatnonzero(np.unpackbits(row, count=vocabulary)) for row in packed.numpy()]
        sizes, tokens = np.array([len(row) for row in rows]), np.concatenate(rows)
    else:
        steps = packed.numpy()
        places = np.cumsum(steps, dtype=np.int64)[steps != _FILLER]
        if len(places) == 0 or places[-1] >= clusters * vocabulary or (np.diff(places) < 1).any():
            raise ValueError("gaps that lead nowhere")
        sizes = np.bincount(places // vocabulary, minlength=clusters)
        tokens = places % vocabulary
    if sizes.min() < 1:
        raise ValueError("a cluster without tokens")
    offsets = torch.zeros(clusters + 1, dtype=torch.long)
    offsets[1:] = torch.from_numpy(sizes).cumsum(0)
    return offsets, torch.from_numpy(tokens.astype(np.int32))


def _gaps(offsets: Tensor, tokens: Tensor, vocabulary: int) -> np.ndarray:
    cluster = np.repeat(np.arange(len(offsets) - 1), offsets.diff().numpy())
    gaps = np.diff(cluster * vocabulary + tokens.numpy(), prepend=0)
    fillers = gaps // _FILLER
    ends = np.cumsum(fillers + 1)
    steps = np.full(int(ends[-1]), _FILLER, np.uint8)
    steps[ends - 1] = gaps % _FILLER
    return steps
