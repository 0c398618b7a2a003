"""Triton kernels of a Transformer's layer over few vectors. Importing this needs Triton.

With few vectors, each kernel of a layer takes about as long as its launch and one read of the
device's memory. So fewer kernels are faster, and each reads all it can before it computes. Sums
are in float32, and none is a product of tensor cores: in float32, Triton's products of matrices
take three times as long here.
"""

import triton
import triton.language as tl

from ..early_kernels import wait_for_others
from ..native import ACTIVATIONS

#: Less than any score, and finite: two infinities have no difference.
_LOWEST: tl.constexpr = tl.constexpr(-1.0e30)
_RELU: tl.constexpr = tl.constexpr(ACTIVATIONS["relu"])
_GELU: tl.constexpr = tl.constexpr(ACTIVATIONS["gelu"])
_SILU: tl.constexpr = tl.constexpr(ACTIVATIONS["silu"])


@triton.jit
def _normalised(
    vectors: tl.tensor, within: tl.tensor, gains: tl.tensor, shifts: tl.tensor, epsilon: tl.tensor,
    inner: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Layer normalisation of vectors of ``inner`` numbers: (any, 1, block), 0 behind their ends."""
    mean = tl.sum(vectors, 2, keep_dims=True) / inner
    apart = tl.where(within, vectors - mean, 0.0)
    variance = tl.sum(apart * apart, 2, keep_dims=True) / inner
    scaled = apart * (1.0 / tl.sqrt(variance + epsilon))
    return scaled * gains.to(tl.float32) + shifts.to(tl.float32)


@triton.jit(do_not_specialize=["new"])
def normalise(
    inputs: tl.tensor, gain: tl.tensor, shift: tl.tensor, epsilon: tl.tensor, wanted: tl.tensor,
    outputs: tl.tensor, new: tl.tensor, inner: tl.constexpr, some: tl.constexpr,
    block: tl.constexpr, early: tl.constexpr,
) -> None:  # fmt: skip
    """Layer normalisation. The grid is (rows, outputs of each).

    Args:
        inputs: (rows, new, inner).
        gain, shift, epsilon: of the layer normalisation.
        wanted: (rows, outputs of each) long, which vectors are normalised, if ``some``; else all.
        outputs: (rows, outputs of each, inner), is written.
        new, inner: sizes.
        some: see above.
        block, early: as for :func:`linear`.
    """
    row, number, each = tl.program_id(0), tl.program_id(1), tl.num_programs(1)
    column = tl.arange(0, block)[None, None, :]
    within = column < inner
    gains = tl.load(gain + column, mask=within, other=0.0)
    shifts = tl.load(shift + column, mask=within, other=0.0)
    wait_for_others(early)
    which = tl.load(wanted + row * each + number) if some else number
    at = (row * new + which) * inner + column
    vector = tl.load(inputs + at, mask=within, other=0.0).to(tl.float32)
    found = _normalised(vector, within, gains, shifts, epsilon, inner)
    tl.store(outputs + (row * each + number) * inner + column, found, mask=within)


@triton.jit(do_not_specialize=["vectors", "outer"])
def linear(
    inputs: tl.tensor, gain: tl.tensor, shift: tl.tensor, epsilon: tl.tensor, normed: tl.tensor,
    weight: tl.tensor, bias: tl.tensor, added: tl.tensor, outputs: tl.tensor, vectors: tl.tensor,
    outer: tl.tensor, inner: tl.constexpr, has_norm: tl.constexpr, keeps: tl.constexpr,
    has_bias: tl.constexpr, activation: tl.constexpr, adds: tl.constexpr, lines: tl.constexpr,
    together: tl.constexpr, block: tl.constexpr, early: tl.constexpr,
) -> None:  # fmt: skip
    """outputs = added + f(norm(inputs) weight' + bias), each part but the product if wanted.

    The grid is (outer / lines, vectors / together), rounded up.

    Args:
        inputs: (vectors, inner).
        gain, shift, epsilon: of the layer normalisation, if ``has_norm``.
        normed: (vectors, inner), where normalised inputs are written to, if ``keeps``.
        weight: (outer, inner).
        bias: (outer,), if ``has_bias``.
        activation: f, a number of :data:`..native.ACTIVATIONS`.
        added: (vectors, outer), if ``adds``.
        outputs: (vectors, outer), is written.
        vectors, outer, inner: sizes.
        lines: outputs of a program, a power of 2.
        together: vectors of a program, which reads its weights once for all of them.
        block: a power of 2 that is not less than ``inner``.
        early: see :mod:`..early_kernels`.
    """
    # The axes are vectors, outputs and inputs: a tensor that lacks one has it of size 1, so that
    # none changes its layout, which goes by shared memory.
    row = tl.program_id(1) * together + tl.arange(0, together)[:, None, None]
    line = tl.program_id(0) * lines + tl.arange(0, lines)[None, :, None]
    column = tl.arange(0, block)[None, None, :]
    there, wanted, within = row < vectors, line < outer, column < inner
    at, where = row * inner + column, row * outer + line
    matrix = tl.load(weight + line * inner + column, mask=wanted & within, other=0.0)
    biases = tl.zeros((1, lines, 1), tl.float32)
    if has_bias:
        biases += tl.load(bias + line, mask=wanted, other=0.0).to(tl.float32)
    if has_norm:
        gains = tl.load(gain + column, mask=within, other=0.0)
        shifts = tl.load(shift + column, mask=within, other=0.0)
    wait_for_others(early)
    hidden = tl.load(inputs + at, mask=there & within, other=0.0).to(tl.float32)
    rest = tl.zeros((together, lines, 1), tl.float32)
    if adds:
        rest += tl.load(added + where, mask=there & wanted, other=0.0).to(tl.float32)
    if has_norm:
        hidden = _normalised(hidden, within, gains, shifts, epsilon, inner)
        if keeps:
            tl.store(normed + at, hidden, mask=there & within & (tl.program_id(0) == 0))
    sums = tl.sum(matrix.to(tl.float32) * hidden, 2, keep_dims=True) + biases
    if activation == _RELU:
        sums = tl.maximum(sums, 0.0)
    if activation == _GELU:
        sums *= 0.5 + 0.5 * tl.erf(sums * 0.7071067811865476)
    if activation == _SILU:
        sums *= tl.sigmoid(sums)
    tl.store(outputs + where, sums + rest, mask=there & wanted)


@triton.jit
def _joined(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, hidden: tl.tensor, top: tl.tensor,
    total: tl.tensor, found: tl.tensor,
) -> tl.tensor:  # fmt: skip
    """A softmax that continues over more entries.

    Args:
        query: (units,) float32.
        keys: (entries, units).
        values: (entries, units).
        hidden: (entries,) float32, what is added to scores: -inf where there is no entry.
        top: the greatest score so far.
        total: the sum of exponentials of scores - top.
        found: (units,) the sum of values with these weights.
    """
    scores = tl.sum(keys.to(tl.float32) * query[None, :], 1) + hidden
    highest = tl.maximum(top, tl.max(scores, 0))
    shrunk, parts = tl.exp(top - highest), tl.exp(scores - highest)
    found = found * shrunk + tl.sum(parts[:, None] * values.to(tl.float32), 0)
    return highest, total * shrunk + tl.sum(parts, 0), found


@triton.jit
def _entries(
    keys: tl.tensor, values: tl.tensor, mask: tl.tensor, entry: tl.tensor, end: tl.tensor,
    places: tl.tensor, part: tl.tensor, masked: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Keys and values of some entries, (entries, units), and what is added to their scores.

    Args:
        keys, values: where they are.
        mask: where what is added to their scores is, if ``masked``.
        entry: (entries,) their numbers.
        end: entries with this number or more are none.
        places: (entries, units) behind ``keys`` and ``values``.
        part: (units,) others are none.
        masked: see above.
    """
    within = entry < end
    seen = within[:, None] & part[None, :]
    some_keys = tl.load(keys + places, mask=seen, other=0.0)
    some_values = tl.load(values + places, mask=seen, other=0.0)
    if masked:
        hidden = tl.load(mask + entry, mask=within, other=float("-inf")).to(tl.float32)
    else:
        hidden = tl.where(within, 0.0, float("-inf"))
    return some_keys, some_values, hidden


@triton.jit(do_not_specialize=["capacity", "new", "each", "source", "beams"])
def attend(
    inputs: tl.tensor, held: tl.tensor, limits: tl.tensor, keys: tl.tensor, values: tl.tensor,
    mask: tl.tensor, wanted: tl.tensor, hidden: tl.tensor, kept: tl.tensor, outputs: tl.tensor,
    capacity: tl.tensor, new: tl.tensor, each: tl.tensor, source: tl.tensor, beams: tl.tensor,
    factor: tl.tensor, heads: tl.constexpr, size: tl.constexpr, own: tl.constexpr,
    among: tl.constexpr, limited: tl.constexpr, some: tl.constexpr, span: tl.constexpr,
    block: tl.constexpr, fresh: tl.constexpr, early: tl.constexpr,
) -> None:  # fmt: skip
    """Attention of a row's new vectors, to its cache and to each other, or to its source.

    The grid is (rows * new, heads). If ``some``, it is (rows * (new + each), heads): the first
    programs of a row store keys and values only, and the others have one query each.

    Args:
        inputs: (rows * new, 3 * heads * size) queries, keys and values if ``own`` or ``among``;
            else (rows * new, heads * size) queries.
        held: (rows,) long, entries of each row in its cache, if ``own``.
        limits: (rows, new) long, slots that each query sees, if ``limited``; else it sees those
            up to its own.
        keys: (rows, capacity, heads, size) if ``own``, and new ones are written; those of
            ``inputs`` if ``among``; else (sentences, heads, source, size).
        values: the same.
        mask: (sentences, source), what is added to scores, if not ``own``.
        wanted: (rows, each) long, which vectors of a row are queries, if ``some``; else all are.
        hidden: (rows * new, heads * size), what is added to the sublayer's outputs, if ``some``.
        kept: (rows * each, heads * size), is written if ``some``: that of the queries.
        outputs: (rows * new, heads * size), or (rows * each, heads * size), is written.
        capacity, new, each, source: sizes.
        beams: rows of each sentence.
        factor: of the scores.
        heads, size: of the attention.
        own: whether it is a decoder's self-attention.
        among: whether it is an encoder's: the vectors of a row are its source.
        limited, some: see above; ``some`` only if ``own``.
        span: a power of 2 that is not less than ``size``.
        block: entries of the cache or source that are read at a time, a power of 2.
        fresh: a power of 2 that is not less than ``new``, if ``own``.
        early: see :mod:`..early_kernels`.
    """
    program, head = tl.program_id(0), tl.program_id(1)
    every = new + each if some else new
    row, number = program // every, program % every
    asks, place, index = True, program, number
    unit, entry = tl.arange(0, span), tl.arange(0, block)
    part = unit < size
    width: tl.constexpr = heads * size
    stride: tl.constexpr = 3 * width if own or among else width
    begin = inputs + head * size + unit
    top, total = _LOWEST, 0.0
    found = tl.zeros((span,), tl.float32)
    wait_for_others(early)
    if some:
        asks, place = number >= new, row * each + number - new
        index = tl.load(wanted + place, mask=asks, other=number)
    vector = row * new + index
    query = tl.load(begin + vector * stride, mask=part, other=0.0).to(tl.float32) * factor
    if own:
        end = tl.load(held + row)
        slot = end + index
        limit = tl.load(limits + vector) if limited else slot + 1
        # Others' new entries are read where they come from: they may not be in the cache yet.
        others = tl.arange(0, fresh)
        where = begin[None, :] + (row * new + others)[:, None] * stride
        read = (others < new)[:, None] & part[None, :]
        new_keys = tl.load(where + width, mask=read, other=0.0)
        new_values = tl.load(where + 2 * width, mask=read, other=0.0)
        own_key = tl.load(begin + vector * stride + width, mask=part, other=0.0)
        own_value = tl.load(begin + vector * stride + 2 * width, mask=part, other=0.0)
        visible = (others < limit - end) & (others < new)
        # What is not to be seen may be infinite, so that no weight makes it 0.
        new_keys = tl.where(visible[:, None], new_keys, 0.0)
        new_values = tl.where(visible[:, None], new_values, 0.0)
        unseen = tl.where(visible, 0.0, float("-inf"))
        at = ((row * capacity + slot) * heads + head) * size + unit
        stores = slot < capacity
        end = tl.minimum(end, limit)
        if some:
            stores, end = stores & (number < new), tl.where(asks, end, 0)
            rest = tl.load(hidden + vector * width + head * size + unit, mask=part, other=0.0)
            tl.store(kept + place * width + head * size + unit, rest, mask=part & asks)
        origin, step = row * capacity * width + head * size, width
        added = mask
    else:
        end, sentence = source, row // beams
        if among:
            origin, step = sentence * source * stride + head * size, stride
        else:
            origin, step = (sentence * heads + head) * source * size, size
        added = mask + sentence * source
    places = origin + entry[:, None] * step + unit[None, :]
    old_keys, old_values, unreal = _entries(
        keys, values, added, entry, end, places, part, not own
    )  # fmt: skip
    if own:
        top, total, found = _joined(query, new_keys, new_values, unseen, top, total, found)
        tl.store(keys + at, own_key, mask=part & stores)
        tl.store(values + at, own_value, mask=part & stores)
    top, total, found = _joined(query, old_keys, old_values, unreal, top, total, found)
    first = block
    while first < end:
        more = first + tl.arange(0, block)
        places = origin + more[:, None] * step + unit[None, :]
        old_keys, old_values, unreal = _entries(
            keys, values, added, more, end, places, part, not own
        )  # fmt: skip
        top, total, found = _joined(query, old_keys, old_values, unreal, top, total, found)
        first += block
    tl.store(outputs + place * width + head * size + unit, found / total, mask=part & asks)
