"""Triton kernel of what a decoder looks at of a source. Importing this needs Triton."""

import triton
import triton.language as tl

from ..early_kernels import wait_for_others


@triton.jit(do_not_specialize=["rows", "source", "slots", "outer"])
def keys_and_values(
    encoded: tl.tensor, padded: tl.tensor, weight: tl.tensor, bias: tl.tensor,
    outputs: tl.tensor, mask: tl.tensor, rows: tl.tensor, source: tl.tensor, slots: tl.tensor,
    outer: tl.tensor, heads: tl.constexpr, size: tl.constexpr, has_bias: tl.constexpr,
    lines: tl.constexpr, together: tl.constexpr, block: tl.constexpr, length: tl.constexpr,
    early: tl.constexpr,
) -> None:  # fmt: skip
    """Keys and values of a batch's sources in all layers, and the mask of both.

    The grid is (outer / lines, rows * slots / together), rounded up.

    Args:
        encoded: (rows, source, heads * size), anything where padded.
        padded: (rows, source) bytes, 1 where padded.
        weight: (outer, heads * size).
        bias: (outer,), if ``has_bias``.
        outputs: (outer / (heads * size), rows, heads, slots, size), is written: 0 behind the
            source.
        mask: (rows, slots), is written: -inf where padded and behind the source, else 0. Rows that
            are too many, all of them padded, see their first slot.
        rows, source, slots, outer: sizes; slots are source positions or more.
        heads, size: of the attention.
        has_bias: see above.
        lines, together, block: see :func:`.layer_kernels.linear`.
        length: a power of 2 that is not less than ``source``.
        early: see :mod:`..early_kernels`.
    """
    width: tl.constexpr = heads * size
    entry = tl.program_id(1) * together + tl.arange(0, together)[:, None, None]
    line = tl.program_id(0) * lines + tl.arange(0, lines)[None, :, None]
    column = tl.arange(0, block)[None, None, :]
    row, slot = entry // slots, entry % slots
    there, wanted, within = row < rows, line < outer, column < width
    matrix = tl.load(weight + line * width + column, mask=wanted & within, other=0.0)
    biases = tl.zeros((1, lines, 1), tl.float32)
    if has_bias:
        biases += tl.load(bias + line, mask=wanted, other=0.0).to(tl.float32)
    wait_for_others(early)
    inside = there & (slot < source)
    real = inside & (tl.load(padded + row * source + slot, mask=inside, other=1) == 0)
    at = (row * source + slot) * width + column
    hidden = tl.load(encoded + at, mask=real & within, other=0.0).to(tl.float32)
    sums = tl.sum(matrix.to(tl.float32) * hidden, 2, keep_dims=True) + biases
    part, unit = line // width, line % width
    head = (part * rows + row) * heads + unit // size
    where = (head * slots + slot) * size + unit % size
    tl.store(outputs + where, tl.where(inside, sums, 0.0), mask=there & wanted)
    if tl.program_id(0) == 0:
        other = tl.arange(0, length)[None, None, :]
        others = tl.load(padded + row * source + other, mask=there & (other < source), other=1)
        empty = tl.min(others.to(tl.int32), 2, keep_dims=True) == 1
        shown = real | (inside & empty & (slot == 0))
        tl.store(mask + entry, tl.where(shown, 0.0, float("-inf")), mask=there)
