"""Triton kernels of a projection whose best symbols are wanted. Importing this needs Triton.

No score is written: each program of a part of the symbols tells the best one of them.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["vectors", "vocabulary", "parts"])
def score_lines(
    inputs: tl.tensor, weight: tl.tensor, bias: tl.tensor, tops: tl.tensor, totals: tl.tensor,
    bests: tl.tensor, choices: tl.tensor, vectors: tl.tensor, vocabulary: tl.tensor,
    parts: tl.tensor, factor: tl.tensor, suppressed_id: tl.tensor, inner: tl.constexpr,
    has_bias: tl.constexpr, lines: tl.constexpr, groups: tl.constexpr, together: tl.constexpr,
    block: tl.constexpr,
) -> None:  # fmt: skip
    """Scores parts of the vocabulary, of ``groups * lines`` symbols each.

    The grid is (parts, vectors / together), rounded up.

    Args:
        inputs: (vectors, inner).
        weight: (vocabulary, inner).
        bias: (vocabulary,), if ``has_bias``.
        tops: (vectors, parts) float32, is written: the greatest score of each part.
        totals: (vectors, parts) float32, is written: the sum of exponentials of scores - top.
        bests: (vectors, parts) float32, is written: the greatest score of symbols that are
            allowed.
        choices: (vectors, parts) int32, is written: the first symbol with that score.
        vectors, vocabulary, parts, inner: sizes.
        factor: of the scores.
        suppressed_id: a symbol that is not allowed, or -1.
        lines: symbols at a time, a power of 2.
        groups: how often.
        together: vectors of a program.
        block: a power of 2 that is not less than ``inner``.
    """
    part = tl.program_id(0)
    column = tl.arange(0, block)
    within = column < inner
    for number in tl.static_range(together):
        row = tl.program_id(1) * together + number
        there = row < vectors
        vector = tl.load(
            inputs + row * inner + column[None, :], mask=there & within[None, :], other=0.0
        ).to(tl.float32)
        top, total, best, choice = -3.4e38, 0.0, float("-inf"), 2**31 - 1
        for group in range(groups):
            line = (part * groups + group) * lines + tl.arange(0, lines)
            wanted = line < vocabulary
            matrix = tl.load(
                weight + line[:, None].to(tl.int64) * inner + column[None, :],
                mask=wanted[:, None] & within[None, :],
                other=0.0,
            )
            scores = tl.sum(matrix.to(tl.float32) * vector, 1)
            if has_bias:
                scores += tl.load(bias + line, mask=wanted, other=0.0).to(tl.float32)
            # PyTorch's products are of the weights' type, and ties are frequent in half precision.
            scores = scores.to(matrix.dtype).to(tl.float32)
            scores = tl.where(wanted, scores * factor, float("-inf"))
            allowed = tl.where(line == suppressed_id, float("-inf"), scores)
            greatest = tl.max(allowed, 0)
            first = tl.min(tl.where(allowed == greatest, line, 2**31 - 1), 0)
            choice = tl.where(greatest > best, first, choice)
            best = tl.maximum(best, greatest)
            highest = tl.maximum(top, tl.max(scores, 0))
            total = total * tl.exp(top - highest) + tl.sum(tl.exp(scores - highest), 0)
            top = highest
        at = row * parts + part
        tl.store(tops + at, top, mask=there)
        tl.store(totals + at, total, mask=there)
        tl.store(bests + at, best, mask=there)
        tl.store(choices + at, choice, mask=there)


@triton.jit(do_not_specialize=["parts", "last"])
def combine_parts(
    tops: tl.tensor,
    totals: tl.tensor,
    bests: tl.tensor,
    choices: tl.tensor,
    chosen: tl.tensor,
    log_probabilities: tl.tensor,
    normalisers: tl.tensor,
    parts: tl.tensor,
    last: tl.tensor,
    span: tl.constexpr,
) -> None:
    """From what is known of the parts of a state's scores to what is known of all of them.

    The grid is (rows,).

    Args:
        tops: (rows, parts) the greatest score of each part.
        totals: (rows, parts) the sum of exponentials of scores - top.
        bests: (rows, parts) the greatest score of symbols that are allowed.
        choices: (rows, parts) int32, the first symbol with that score.
        chosen: (rows,) long, is written: the first symbol with the greatest score.
        log_probabilities: (rows,) float32, is written: of these symbols.
        normalisers: (rows,) float32, is written: the log of the sum of exponentials.
        parts: how many.
        last: the last symbol, which is chosen where no score is a number.
        span: a power of 2 that is not less.
    """
    row = tl.program_id(0).to(tl.int64)
    each = tl.arange(0, span)
    at, real = row * parts + each, each < parts
    top = tl.load(tops + at, mask=real, other=-3.4e38)
    total = tl.load(totals + at, mask=real, other=0.0)
    best = tl.load(bests + at, mask=real, other=float("-inf"))
    choice = tl.load(choices + at, mask=real, other=2**31 - 1)
    highest, greatest = tl.max(top, 0), tl.max(best, 0)
    normaliser = highest + tl.log(tl.sum(total * tl.exp(top - highest), 0))
    first = tl.minimum(tl.min(tl.where(best == greatest, choice, 2**31 - 1), 0), last)
    tl.store(chosen + row, first.to(tl.int64))
    tl.store(log_probabilities + row, greatest - normaliser)
    tl.store(normalisers + row, normaliser)
