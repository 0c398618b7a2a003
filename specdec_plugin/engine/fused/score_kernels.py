"""Triton kernels of a projection whose best symbols are wanted. Importing this needs Triton.

No score is written: each program of a part of the symbols tells the best one of them.
"""

import triton
import triton.language as tl

from ..early_kernels import wait_for_others


@triton.jit
def _weights(
    weight: tl.tensor, bias: tl.tensor, symbol: tl.tensor, column: tl.tensor,
    vocabulary: tl.tensor, inner: tl.constexpr, has_bias: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Weights of symbols, (1, lines, block), and their biases, (1, lines, 1)."""
    wanted = symbol < vocabulary
    where = symbol.to(tl.int64) * inner + column
    matrix = tl.load(weight + where, mask=wanted & (column < inner), other=0.0)
    biases = tl.zeros(symbol.shape, tl.float32)
    if has_bias:
        biases += tl.load(bias + symbol, mask=wanted, other=0.0).to(tl.float32)
    return matrix, biases


@triton.jit
def _joined(
    matrix: tl.tensor, biases: tl.tensor, hidden: tl.tensor, symbol: tl.tensor,
    vocabulary: tl.tensor, factor: tl.tensor, suppressed_id: tl.tensor, barred: tl.tensor,
    top: tl.tensor, total: tl.tensor, best: tl.tensor, choice: tl.tensor,
) -> tl.tensor:  # fmt: skip
    """What is known of the scores of some symbols and of more of them.

    Args:
        matrix, biases: of :func:`_weights`.
        hidden: (together, 1, block) float32.
        symbol: (1, lines, 1) more symbols.
        vocabulary, factor, suppressed_id: see :func:`score_lines`.
        barred: (together, 1, 1) a symbol that is not allowed for each vector, or -1.
        top, total, best, choice: (together, 1, 1) what is known of those before; see there.
    """
    scores = tl.sum(matrix.to(tl.float32) * hidden, 2, keep_dims=True) + biases
    # PyTorch's products are of the weights' type, and ties are frequent in half precision.
    scores = scores.to(matrix.dtype).to(tl.float32) * factor
    scores = tl.where(symbol < vocabulary, scores, float("-inf"))
    allowed = tl.where((symbol == suppressed_id) | (symbol == barred), float("-inf"), scores)
    greatest = tl.max(allowed, 1, keep_dims=True)
    first = tl.min(tl.where(allowed == greatest, symbol, 2**31 - 1), 1, keep_dims=True)
    choice = tl.where(greatest > best, first, choice)
    highest = tl.maximum(top, tl.max(scores, 1, keep_dims=True))
    exponentials = tl.sum(tl.exp(scores - highest), 1, keep_dims=True)
    total = total * tl.exp(top - highest) + exponentials
    return highest, total, tl.maximum(best, greatest), choice


@triton.jit(do_not_specialize=["vectors", "vocabulary", "parts", "late", "least"])
def score_lines(
    inputs: tl.tensor, weight: tl.tensor, bias: tl.tensor, steps: tl.tensor, tops: tl.tensor,
    totals: tl.tensor, bests: tl.tensor, choices: tl.tensor, vectors: tl.tensor,
    vocabulary: tl.tensor, parts: tl.tensor, factor: tl.tensor, suppressed_id: tl.tensor,
    late: tl.tensor, least: tl.tensor, inner: tl.constexpr, has_bias: tl.constexpr,
    bars: tl.constexpr, lines: tl.constexpr, groups: tl.constexpr, together: tl.constexpr,
    block: tl.constexpr, early: tl.constexpr,
) -> None:  # fmt: skip
    """Scores parts of the vocabulary, of ``groups * lines`` symbols each.

    The grid is (parts, vectors / together), rounded up.

    Args:
        inputs: (vectors, inner).
        weight: (vocabulary, inner).
        bias: (vocabulary,), if ``has_bias``.
        steps: (vectors,) long, if ``bars``: a vector with a step before ``least`` may not choose
            the symbol ``late``.
        tops: (vectors, parts) float32, is written: the greatest score of each part.
        totals: (vectors, parts) float32, is written: the sum of exponentials of scores - top.
        bests: (vectors, parts) float32, is written: the greatest score of symbols that are
            allowed.
        choices: (vectors, parts) int32, is written: the first symbol with that score.
        vectors, vocabulary, parts, inner: sizes.
        factor: of the scores.
        suppressed_id: a symbol that is not allowed, or -1.
        late, least: see ``steps``.
        lines: symbols at a time, a power of 2.
        groups: how often.
        together: vectors of a program.
        block: a power of 2 that is not less than ``inner``.
        early: see :mod:`..early_kernels`.
    """
    # The axes are vectors, symbols and inputs, as in the kernels of a layer.
    part = tl.program_id(0)
    row = tl.program_id(1) * together + tl.arange(0, together)[:, None, None]
    symbol = part * groups * lines + tl.arange(0, lines)[None, :, None]
    column = tl.arange(0, block)[None, None, :]
    there, within = row < vectors, column < inner
    matrix, biases = _weights(weight, bias, symbol, column, vocabulary, inner, has_bias)
    wait_for_others(early)
    hidden = tl.load(inputs + row * inner + column, mask=there & within, other=0.0).to(tl.float32)
    top = tl.full((together, 1, 1), -3.4e38, tl.float32)
    total = tl.zeros((together, 1, 1), tl.float32)
    best = tl.full((together, 1, 1), float("-inf"), tl.float32)
    choice = tl.full((together, 1, 1), 2**31 - 1, tl.int32)
    barred = tl.full((together, 1, 1), -1, tl.int32)
    if bars:
        step = tl.load(steps + row, mask=there, other=0)
        barred = tl.where(step < least, late, -1)
    top, total, best, choice = _joined(
        matrix, biases, hidden, symbol, vocabulary, factor, suppressed_id, barred, top, total,
        best, choice,
    )  # fmt: skip
    for group in range(1, groups):
        more = (part * groups + group) * lines + tl.arange(0, lines)[None, :, None]
        matrix, biases = _weights(weight, bias, more, column, vocabulary, inner, has_bias)
        top, total, best, choice = _joined(
            matrix, biases, hidden, more, vocabulary, factor, suppressed_id, barred, top, total,
            best, choice,
        )  # fmt: skip
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
    early: tl.constexpr,
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
        early: see :mod:`..early_kernels`.
    """
    row = tl.program_id(0).to(tl.int64)
    each = tl.arange(0, span)
    wait_for_others(early)
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
