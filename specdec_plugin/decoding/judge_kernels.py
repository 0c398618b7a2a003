"""A Triton kernel that takes what stands of drafts. Importing this needs Triton."""

import triton
import triton.language as tl

from ..engine.early_kernels import wait_for_others


@triton.jit(do_not_specialize=["stride", "width"])
def append(
    best: tl.tensor, scored: tl.tensor, draft: tl.tensor, drafted: tl.tensor, inputs: tl.tensor,
    scores: tl.tensor, lengths: tl.tensor, alive: tl.tensor, held: tl.tensor, runs: tl.tensor,
    ring: tl.tensor, stride: tl.tensor, width: tl.tensor, eos: tl.tensor, count: tl.constexpr,
    span: tl.constexpr, early: tl.constexpr,
) -> None:  # fmt: skip
    """What :func:`.judge_best` and :meth:`.StaticRows.append` do. The grid is (rows,).

    Args:
        best: (rows, width) long, the verifier's choices.
        scored: (rows, width) float32, their log-probabilities.
        draft: (rows, width - 1) long.
        drafted: (rows,) long, tokens that each row drafted.
        inputs, scores: (rows, stride), of :class:`.StaticRows`; what is added is written.
        lengths, alive, held: (rows,) long, the same; are changed.
        runs: (rows,) long, how often the kernel ran; is changed.
        ring: (count, rows, 5 + 2 * width) long, of :class:`.Tables`; one table is written.
        stride, width, count: sizes.
        eos: the symbol that ends a sentence.
        span: a power of 2 that is not less than ``width``.
        early: see :mod:`..engine.early_kernels`.
    """
    row = tl.program_id(0)
    number = tl.arange(0, span)
    real = number < width
    wait_for_others(early)
    tokens = tl.load(best + row * width + number, mask=real, other=0)
    found = tl.load(scored + row * width + number, mask=real, other=0.0)
    length, live = tl.load(lengths + row), tl.load(alive + row)
    proposals, run = tl.load(drafted + row), tl.load(runs + row)
    possible = (number < width - 1) & (number < proposals)
    proposed = tl.load(draft + row * (width - 1) + number, mask=possible, other=-1)
    stands = possible & (proposed == tokens)
    kept = tl.min(tl.where(stands, span, number), 0)
    ends = real & (tokens == eos) & (number <= kept)
    end = tl.min(tl.where(ends, number, span), 0)
    ended = (end < span).to(tl.int64)
    added = tl.minimum(kept, end) + 1
    kept = tl.minimum(kept, added)
    # Behind its last token, a row may have any.
    at = row * stride + length + number
    tl.store(scores + at, found, mask=real & (length + number < stride))
    tl.store(inputs + at + 1, tokens, mask=real & (length + number + 1 < stride))
    new_length = length + added * live
    tl.store(lengths + row, new_length)
    tl.store(held + row, length + 1)
    tl.store(alive + row, live - ended * live)
    tl.store(runs + row, run + 1)
    line = ring + ((run % count) * tl.num_programs(0) + row) * (5 + 2 * width)
    tl.store(line, new_length)
    tl.store(line + 1, proposals * live)
    tl.store(line + 2, kept * live)
    tl.store(line + 3, added * live)
    tl.store(line + 4, ended * live)
    tl.store(line + 5 + number, tokens, mask=real)
    tl.store(line + 5 + width + number, found.to(tl.int32, bitcast=True).to(tl.int64), mask=real)
