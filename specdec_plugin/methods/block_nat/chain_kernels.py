"""Triton kernels that choose the tokens of drafted blocks one after another.

Importing this needs Triton. They compute what :class:`.ChainHead` does; see :class:`.CudaChain`
for the tables. All sums are in float32, and none is a product of tensor cores.
"""

import triton
import triton.language as tl

from ...engine.early_kernels import wait_for_others

#: A key has the bits of a token flipped, so that of equal scores the first token has the most.
_LAST: tl.constexpr = tl.constexpr(2**31 - 1)
#: Less than the key of any score.
NO_KEY: tl.constexpr = tl.constexpr(-(2**63))


@triton.jit
def keys_of(scores: tl.tensor, tokens: tl.tensor) -> tl.tensor:
    """Integers that rise with the scores and, where those are equal, fall with the tokens.

    Args:
        scores: (…,) float32. What is not a number counts as more than infinity, or as less.
        tokens: (…,) int32.
    """
    bits = scores.to(tl.int32, bitcast=True)
    # All bits but the sign of a negative number fall where the number rises.
    rising = bits ^ ((bits >> 31) & _LAST)
    return (rising.to(tl.int64) << 32) | (tokens ^ _LAST).to(tl.int64)


@triton.jit
def token_of(key: tl.tensor) -> tl.tensor:
    """The token of a key."""
    return (key & _LAST) ^ _LAST


@triton.jit(do_not_specialize=["last", "position", "length"])
def next_keys(
    last: tl.tensor,
    offsets: tl.tensor,
    by_token: tl.tensor,
    matrix: tl.tensor,
    entering: tl.tensor,
    keys: tl.tensor,
    position: tl.tensor,
    length: tl.tensor,
    vocabulary: tl.constexpr,
    units: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
    parts: tl.constexpr,
    span: tl.constexpr,
    first: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """Scores of a part of the vocabulary at a position, and a part of what enters the next one.

    The grid is (rows, (vocabulary + units) / block), rounded up. Each program finds the token
    before and all units of the layer for itself, while the weights of its part come.

    Args:
        last: (rows,) long, the token before the block.
        offsets: (rows, length, vocabulary + units), what the states bring.
        by_token: (vocabulary, units), what each token brings into the layer.
        matrix: (vocabulary + units, units), what the layer brings.
        entering: (length, rows, units) float32. What the layer takes at this position, but for
            its token, is read unless ``first``. That of the next position is written.
        keys: (length, rows, parts) long. Those of the position before are read unless ``first``,
            those of this one are written: the greatest of each part.
        position: in the block.
        length: positions of the block.
        vocabulary, units: sizes.
        chunk: columns that a warp reads at a time, a power of 2.
        block: lines of the matrix of a program, a power of 2.
        parts: programs of a row with tokens.
        span: a power of 2 that is not less.
        first: whether the position is 0.
        early: see :mod:`...engine.early_kernels`.
    """
    row, rows = tl.program_id(0), tl.num_programs(0)
    part = tl.program_id(1)
    lines: tl.constexpr = vocabulary + units
    line = part * block + tl.arange(0, block)
    weights: tl.tuple = ()
    for start in tl.static_range(0, units, chunk):
        columns = start + tl.arange(0, chunk)
        read = (line < lines)[:, None] & (columns < units)[None, :]
        where = line[:, None] * units + columns[None, :]
        weights = weights + (tl.load(matrix + where, mask=read, other=0.0),)
    wait_for_others(early)
    # What the token depends on is read first, and what depends on no token next.
    if first:
        token = tl.load(last + row)
        begin = offsets + row * length * lines + vocabulary
    else:
        each = tl.arange(0, span)
        found = keys + ((position - 1) * rows + row) * parts
        best = tl.load(found + each, mask=each < parts, other=NO_KEY)
        begin = entering + (position * rows + row) * units
    inner: tl.tuple = ()
    for start in tl.static_range(0, units, chunk):
        columns = start + tl.arange(0, chunk)
        inner = inner + (tl.load(begin + columns, mask=columns < units, other=0.0),)
    at = position + (line >= vocabulary).to(tl.int32)
    wanted = (line < lines) & (at < length)
    offset = tl.load(offsets + (row * length + at) * lines + line, mask=wanted, other=0.0)
    if not first:
        token = token_of(tl.max(best, 0))
    products = tl.zeros((block, chunk), tl.float32)
    for piece in tl.static_range((units + chunk - 1) // chunk):
        columns = piece * chunk + tl.arange(0, chunk)
        brought = tl.load(by_token + token * units + columns, mask=columns < units, other=0.0)
        layer = tl.maximum(inner[piece].to(tl.float32) + brought.to(tl.float32), 0.0)
        products += weights[piece].to(tl.float32) * layer[None, :]
    sums = tl.sum(products, 1) + offset.to(tl.float32)
    own = tl.where(line < vocabulary, keys_of(sums, line), NO_KEY)
    tl.store(keys + (position * rows + row) * parts + part, tl.max(own, 0), mask=part < parts)
    following = entering + ((position + 1) * rows + row) * units
    tl.store(following + line - vocabulary, sums, mask=wanted & (line >= vocabulary))


@triton.jit(do_not_specialize=["length"])
def tokens_of(
    keys: tl.tensor,
    tokens: tl.tensor,
    length: tl.tensor,
    parts: tl.constexpr,
    span: tl.constexpr,
    early: tl.constexpr,
) -> None:
    """The tokens of the greatest keys. The grid is (rows, length).

    Args:
        keys: (length, rows, parts) of :func:`next_keys`.
        tokens: (rows, length) long, is written.
        length: positions of a block.
        parts: see :func:`next_keys`.
        span, early: the same.
    """
    row, rows, position = tl.program_id(0), tl.num_programs(0), tl.program_id(1)
    each = tl.arange(0, span)
    wait_for_others(early)
    found = keys + (position * rows + row) * parts
    best = tl.load(found + each, mask=each < parts, other=NO_KEY)
    tl.store(tokens + row * length + position, token_of(tl.max(best, 0)))
