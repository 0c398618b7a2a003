"""Sets of tokens in few bytes."""

import zlib
from typing import Tuple

import numpy as np
import torch
from torch import Tensor

from .clusters import joined

#: No more is unpacked: a few bytes of a hostile file could become any number.
MOST_BYTES = 1 << 31


def pack(offsets: Tensor, tokens: Tensor, vocabulary: int) -> Tensor:
    """A bit for each cluster of each symbol, compressed.

    The bits of a symbol lie side by side, because many symbols are active nowhere, or nearly
    everywhere, which a compressor finds best so.

    Args:
        offsets: (clusters + 1,) long; see :class:`.clusters.Clusters`.
        tokens: (…,) int32.
        vocabulary: how many symbols there are.

    Returns:
        (bytes,) uint8.
    """
    clusters = len(offsets) - 1
    bits = np.zeros((vocabulary, _width(clusters)), np.uint8)
    for cluster in range(clusters):
        own = tokens[offsets[cluster] : offsets[cluster + 1]].numpy()
        bits[own, cluster // 8] |= np.uint8(128 >> cluster % 8)
    return torch.frombuffer(bytearray(zlib.compress(bits.tobytes())), dtype=torch.uint8)


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
    bits = _bits(packed, vocabulary * _width(clusters)).reshape(vocabulary, -1)
    sets = []
    for eight in bits.T:
        rows = np.unpackbits(eight[:, None], axis=1).T
        sets += [np.flatnonzero(row).astype(np.int32) for row in rows]
    if not all(map(len, sets[:clusters])):
        raise ValueError("a cluster without tokens")
    if any(map(len, sets[clusters:])):
        raise ValueError("tokens of no cluster")
    return joined(sets[:clusters])


def _width(clusters: int) -> int:
    """Bytes of a symbol."""
    return (clusters + 7) // 8


def _bits(packed: Tensor, count: int) -> np.ndarray:
    """(count,) bytes that were compressed.

    Raises:
        ValueError: there are more or less of them.
    """
    if count > MOST_BYTES:
        raise ValueError(f"{count:,} bytes of tokens")
    unpacker = zlib.decompressobj()
    try:
        found = unpacker.decompress(packed.numpy().tobytes(), count)
        # Without room for more, the end of what was compressed may not have been looked at.
        rest = unpacker.decompress(unpacker.unconsumed_tail, 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(found) != count or rest or not unpacker.eof:
        raise ValueError(f"tokens of another shape than {count:,} bytes")
    return np.frombuffer(found, np.uint8)
