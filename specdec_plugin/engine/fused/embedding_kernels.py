"""Triton kernels of what a decoder is fed. Importing this needs Triton."""

import triton
import triton.language as tl

from ..early_kernels import wait_for_others


@triton.jit
def _write(
    vector: tl.tensor, table: tl.tensor, at: tl.tensor, positions: tl.tensor, outputs: tl.tensor,
    where: tl.tensor, dim: tl.constexpr, has_positions: tl.constexpr, span: tl.constexpr,
) -> None:  # fmt: skip
    """Write the ``where``-th output: a vector, and that of its position."""
    unit = tl.arange(0, span)
    within = unit < dim
    if has_positions:
        last = tl.minimum(at, positions - 1)
        vector += tl.load(table + last * dim + unit, mask=within, other=0.0).to(tl.float32)
    tl.store(outputs + where * dim + unit, vector, mask=within)


@triton.jit(do_not_specialize=["stride", "width", "positions"])
def embed_draft(
    inputs: tl.tensor, draft: tl.tensor, lengths: tl.tensor, embedding: tl.tensor,
    table: tl.tensor, outputs: tl.tensor, stride: tl.tensor, width: tl.tensor,
    positions: tl.tensor, scale: tl.tensor, dim: tl.constexpr, has_positions: tl.constexpr,
    span: tl.constexpr, early: tl.constexpr,
) -> None:  # fmt: skip
    """The newest token of each row, and a draft behind it. The grid is (rows, width).

    Args:
        inputs: (rows, stride) long, all tokens of each row.
        draft: (rows, width - 1) long.
        lengths: (rows,) long, the index of the newest token.
        embedding: (vocabulary, dim).
        table: (positions, dim), if ``has_positions``. Behind its end, its last vector is repeated.
        outputs: (rows, width, dim), is written.
        stride, width, positions, dim: sizes.
        scale: of the vectors of tokens.
        span: a power of 2 that is not less than ``dim``.
        early: see :mod:`..early_kernels`.
    """
    row, number = tl.program_id(0), tl.program_id(1)
    unit = tl.arange(0, span)
    wait_for_others(early)
    at = tl.load(lengths + row) + number
    token = tl.load(inputs + row * stride + at, mask=number == 0, other=0)
    token += tl.load(draft + row * (width - 1) + number - 1, mask=number > 0, other=0)
    vector = tl.load(embedding + token * dim + unit, mask=unit < dim, other=0.0)
    vector = vector.to(tl.float32) * scale
    _write(
        vector, table, at, positions, outputs, row * width + number, dim, has_positions, span
    )  # fmt: skip


@triton.jit(do_not_specialize=["stride", "width", "positions", "count"])
def embed_block(
    inputs: tl.tensor, held: tl.tensor, lengths: tl.tensor, masks: tl.tensor, limits: tl.tensor,
    where: tl.tensor, last: tl.tensor, embedding: tl.tensor, table: tl.tensor, outputs: tl.tensor,
    stride: tl.tensor, width: tl.tensor, positions: tl.tensor, count: tl.tensor,
    scale: tl.tensor, dim: tl.constexpr, has_positions: tl.constexpr, span: tl.constexpr,
    early: tl.constexpr,
) -> None:  # fmt: skip
    """New tokens of each row, which see those before, and masks, which see all.

    The grid is (rows, width).

    Args:
        inputs: (rows, stride) long, all tokens of each row.
        held: (rows,) long, the index of the first token that is fed.
        lengths: (rows,) long, the index of the newest one.
        masks: (count, dim), what is fed behind it.
        limits: (rows, width) long, is written: how many slots each vector sees.
        where: (rows, count) long, is written: the index of each mask in its row.
        last: (rows,) long, is written: the newest token.
        embedding, table, outputs, scale, span, early: as for :func:`embed_draft`. Behind the masks
            of a row, outputs are vectors of positions.
        stride, width, positions, count, dim: sizes.
    """
    row, number = tl.program_id(0), tl.program_id(1)
    unit = tl.arange(0, span)
    within = unit < dim
    wait_for_others(early)
    start, newest = tl.load(held + row), tl.load(lengths + row)
    at = start + number
    is_token, mask = at <= newest, at - newest - 1
    token = tl.load(inputs + row * stride + at, mask=is_token, other=0)
    # A row that has ended is fed no token.
    final = tl.load(inputs + row * stride + newest, mask=number == 0, other=0)
    vector = tl.load(embedding + token * dim + unit, mask=within & is_token, other=0.0)
    vector = vector.to(tl.float32) * scale
    is_mask = (mask >= 0) & (mask < count)
    vector += tl.load(masks + mask * dim + unit, mask=within & is_mask, other=0.0).to(tl.float32)
    _write(
        vector, table, at, positions, outputs, row * width + number, dim, has_positions, span
    )  # fmt: skip
    tl.store(limits + row * width + number, tl.where(is_token, at + 1, newest + 1 + count))
    tl.store(where + row * count + mask, number.to(tl.int64), mask=is_mask)
    tl.store(last + row, final, mask=number == 0)


@triton.jit(do_not_specialize=["source", "positions"])
def embed_source(
    tokens: tl.tensor, vectors: tl.tensor, table: tl.tensor, mask: tl.tensor, outputs: tl.tensor,
    source: tl.tensor, positions: tl.tensor, scale: tl.tensor, pad: tl.constexpr,
    dim: tl.constexpr, has_positions: tl.constexpr, span: tl.constexpr, length: tl.constexpr,
    early: tl.constexpr,
) -> None:  # fmt: skip
    """Vectors of sources, whose positions fairseq counts without padding.

    The grid is (rows * source,).

    Args:
        tokens: (rows, source) long.
        vectors: (rows, source, dim), of the tokens.
        table, scale, span, early: as for :func:`embed_draft`.
        mask: (rows, source), is written: -inf where padded, else 0.
        outputs: (rows, source, dim), is written.
        source, positions, dim: sizes.
        pad: the symbol of padding.
        length: a power of 2 that is not less than ``source``.
    """
    where = tl.program_id(0)
    number, others = where % source, tl.arange(0, length)
    unit = tl.arange(0, span)
    wait_for_others(early)
    token = tl.load(tokens + where)
    seen = tl.load(tokens + where - number + others, mask=others <= number, other=pad)
    vector = tl.load(vectors + where * dim + unit, mask=unit < dim, other=0.0)
    at = tl.maximum(tl.sum((seen != pad).to(tl.int32), 0) - 1, 0)
    vector = vector.to(tl.float32) * scale
    _write(vector, table, at, positions, outputs, where, dim, has_positions, span)
    tl.store(mask + where, tl.where(token == pad, float("-inf"), 0.0))
