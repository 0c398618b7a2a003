"""Triton kernels of a decoder layer over few vectors. Importing this needs Triton.

With few vectors, each kernel of a layer takes about as long as its launch, so that fewer kernels
are faster. Sums are in float32, and none is a product of tensor cores: in float32, Triton's
products of matrices take three times as long here.
"""

import triton
import triton.language as tl

#: Less than any score, and finite: two infinities have no difference.
_LOWEST: tl.constexpr = tl.constexpr(-1.0e30)


@triton.jit
def _normalised(
    vector: tl.tensor, within: tl.tensor, gains: tl.tensor, shifts: tl.tensor, epsilon: tl.tensor,
    inner: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Layer normalisation of a vector of ``inner`` numbers: (1, block), 0 behind its end."""
    mean = tl.sum(vector, 1) / inner
    apart = tl.where(within[None, :], vector - mean[:, None], 0.0)
    variance = tl.sum(apart * apart, 1) / inner
    return apart * (1.0 / tl.sqrt(variance + epsilon))[:, None] * gains[None, :] + shifts[None, :]


@triton.jit(do_not_specialize=["vectors", "outer"])
def linear(
    inputs: tl.tensor, gain: tl.tensor, shift: tl.tensor, epsilon: tl.tensor, normed: tl.tensor,
    weight: tl.tensor, bias: tl.tensor, added: tl.tensor, outputs: tl.tensor, vectors: tl.tensor,
    outer: tl.tensor, inner: tl.constexpr, has_norm: tl.constexpr, keeps: tl.constexpr,
    has_bias: tl.constexpr, relu: tl.constexpr, adds: tl.constexpr, lines: tl.constexpr,
    together: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """outputs = added + relu(norm(inputs) weight' + bias), each part but the product if wanted.

    The grid is (outer / lines, vectors / together), rounded up.

    Args:
        inputs: (vectors, inner).
        gain, shift, epsilon: of the layer normalisation, if ``has_norm``.
        normed: (vectors, inner), where normalised inputs are written to, if ``keeps``.
        weight: (outer, inner).
        bias: (outer,), if ``has_bias``.
        added: (vectors, outer), if ``adds``.
        outputs: (vectors, outer), is written.
        vectors, outer, inner: sizes.
        lines: outputs of a program, a power of 2.
        together: vectors of a program, which reads its weights once for all of them.
        block: a power of 2 that is not less than ``inner``.
    """
    line = tl.program_id(0) * lines + tl.arange(0, lines)
    column = tl.arange(0, block)
    wanted, within = line < outer, column < inner
    matrix = tl.load(
        weight + line[:, None] * inner + column[None, :],
        mask=wanted[:, None] & within[None, :],
        other=0.0,
    )
    biases = tl.zeros((lines,), tl.float32)
    if has_bias:
        biases += tl.load(bias + line, mask=wanted, other=0.0).to(tl.float32)
    if has_norm:
        gains = tl.load(gain + column, mask=within, other=0.0).to(tl.float32)
        shifts = tl.load(shift + column, mask=within, other=0.0).to(tl.float32)
    for number in tl.static_range(together):
        row = tl.program_id(1) * together + number
        there = row < vectors
        at = row * inner + column[None, :]
        vector = tl.load(inputs + at, mask=there & within[None, :], other=0.0).to(tl.float32)
        if has_norm:
            vector = _normalised(vector, within, gains, shifts, epsilon, inner)
            if keeps:
                first = tl.program_id(0) == 0
                tl.store(normed + at, vector, mask=first & there & within[None, :])
        sums = tl.sum(matrix.to(tl.float32) * vector, 1) + biases
        if relu:
            sums = tl.maximum(sums, 0.0)
        if adds:
            sums += tl.load(added + row * outer + line, mask=there & wanted, other=0.0).to(
                tl.float32
            )
        tl.store(outputs + row * outer + line, sums, mask=there & wanted)


@triton.jit
def _joined(
    scores: tl.tensor, values: tl.tensor, top: tl.tensor, total: tl.tensor, found: tl.tensor
) -> tl.tensor:
    """A softmax that continues over more entries.

    Args:
        scores: (entries,), or -inf.
        values: (entries, units).
        top: the greatest score so far.
        total: the sum of exponentials of scores - top.
        found: (units,) the sum of values with these weights.
    """
    highest = tl.maximum(top, tl.max(scores, 0))
    shrunk, parts = tl.exp(top - highest), tl.exp(scores - highest)
    found = found * shrunk + tl.sum(parts[:, None] * values.to(tl.float32), 0)
    return highest, total * shrunk + tl.sum(parts, 0), found


@triton.jit(do_not_specialize=["capacity", "new", "source", "beams"])
def attend(
    inputs: tl.tensor, held: tl.tensor, limits: tl.tensor, keys: tl.tensor, values: tl.tensor,
    mask: tl.tensor, outputs: tl.tensor, capacity: tl.tensor, new: tl.tensor, source: tl.tensor,
    beams: tl.tensor, factor: tl.tensor, heads: tl.constexpr, size: tl.constexpr,
    own: tl.constexpr, limited: tl.constexpr, span: tl.constexpr, block: tl.constexpr,
) -> None:  # fmt: skip
    """Attention of a row's new vectors, to its cache and to each other, or to its source.

    The grid is (rows * new, heads).

    Args:
        inputs: (rows * new, 3 * heads * size) queries, keys and values if ``own``; else
            (rows * new, heads * size) queries.
        held: (rows,) long, entries of each row in its cache, if ``own``.
        limits: (rows, new) long, slots that each query sees, if ``limited``; else it sees those
            up to its own.
        keys: (rows, capacity, heads, size) if ``own``, and new ones are written; else
            (sentences, heads, source, size).
        values: the same.
        mask: (sentences, source), what is added to scores, if not ``own``.
        outputs: (rows * new, heads * size), is written.
        capacity, new, source: sizes.
        beams: rows of each sentence.
        factor: of the scores.
        heads, size: of the attention.
        own: whether it is self-attention.
        limited: see above.
        span: a power of 2 that is not less than ``size``.
        block: entries that are read at a time, a power of 2.
    """
    vector, head = tl.program_id(0), tl.program_id(1)
    row = vector // new
    unit = tl.arange(0, span)
    part = unit < size
    width: tl.constexpr = heads * size
    stride: tl.constexpr = 3 * width if own else width
    begin = inputs + head * size + unit
    asked = tl.load(begin + vector * stride, mask=part, other=0.0).to(tl.float32) * factor
    top, total = _LOWEST, 0.0
    found = tl.zeros((span,), tl.float32)
    if own:
        end = tl.load(held + row)
        slot = end + vector % new
        own_key = tl.load(begin + vector * stride + width, mask=part, other=0.0)
        own_value = tl.load(begin + vector * stride + 2 * width, mask=part, other=0.0)
        at = ((row * capacity + slot) * heads + head) * size + unit
        tl.store(keys + at, own_key, mask=part & (slot < capacity))
        tl.store(values + at, own_value, mask=part & (slot < capacity))
        if limited:
            limit = tl.load(limits + vector)
        else:
            limit = slot + 1
        # Others' new entries are read where they come from: they may not be in the cache yet.
        count = tl.minimum(limit - end, new)
        first_new = 0
        while first_new < count:
            entry = first_new + tl.arange(0, block)
            there = entry < count
            where = begin[None, :] + (row * new + entry)[:, None] * stride
            read = there[:, None] & part[None, :]
            new_keys = tl.load(where + width, mask=read, other=0.0).to(tl.float32)
            new_values = tl.load(where + 2 * width, mask=read, other=0.0)
            new_scores = tl.sum(new_keys * asked[None, :], 1)
            new_scores = tl.where(there, new_scores, float("-inf"))
            top, total, found = _joined(new_scores, new_values, top, total, found)
            first_new += block
        end = tl.minimum(end, limit)
        origin, step = row * capacity * width + head * size, width
    else:
        end = source
        sentence = row // beams
        origin, step = (sentence * heads + head) * source * size, size
    first = 0
    while first < end:
        old = first + tl.arange(0, block)
        within = old < end
        places = origin + old[:, None] * step + unit[None, :]
        seen = within[:, None] & part[None, :]
        old_keys = tl.load(keys + places, mask=seen, other=0.0).to(tl.float32)
        old_values = tl.load(values + places, mask=seen, other=0.0)
        old_scores = tl.sum(old_keys * asked[None, :], 1)
        if not own:
            hidden = tl.load(mask + sentence * source + old, mask=within, other=0.0)
            old_scores += hidden.to(tl.float32)
        old_scores = tl.where(within, old_scores, float("-inf"))
        top, total, found = _joined(old_scores, old_values, top, total, found)
        first += block
    tl.store(outputs + vector * width + head * size + unit, found / total, mask=part)
