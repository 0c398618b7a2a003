"""Triton kernels that score the active tokens of each state (Amer et al., 2022, section 2.3).

Importing this needs Triton. All sums are in float32, and none is a product of tensor cores.
Programs that read weights are single warps: then nothing waits at barriers, and the sums of a
line are those of its warp.
"""

import triton
import triton.language as tl


@triton.jit
def _products(
    state: tl.tensor,
    matrix: tl.tensor,
    lines: tl.tensor,
    real: tl.tensor,
    width: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
) -> tl.tensor:
    """(block,) float32 products of a state with lines of a matrix; 0 where they are not real.

    Args:
        state: points to (width,).
        matrix: points to (…, width).
        lines: (block,) their numbers.
        real: (block,) others are not read.
        width: numbers of a line.
        chunk: how many are read at a time, a power of 2.
        block: lines, a power of 2.
    """
    begins = lines.to(tl.int64)[:, None] * width
    sums = tl.zeros((block, chunk), tl.float32)
    for first in tl.static_range(0, width, chunk):
        columns = first + tl.arange(0, chunk)
        inside = columns < width
        own = tl.load(state + columns, mask=inside, other=0.0).to(tl.float32)
        read = real[:, None] & inside[None, :]
        values = tl.load(matrix + begins + columns[None, :], mask=read, other=0.0)
        sums += values.to(tl.float32) * own[None, :]
    return tl.sum(sums, 1)


@triton.jit(do_not_specialize=["rows", "group"])
def nearest_of_parts(
    states: tl.tensor,
    centroids: tl.tensor,
    norms: tl.tensor,
    distances: tl.tensor,
    owners: tl.tensor,
    out: tl.tensor,
    rows: tl.tensor,
    group: tl.tensor,
    width: tl.constexpr,
    clusters: tl.constexpr,
    vocabulary: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
    fill: tl.constexpr,
) -> None:
    """The nearest of each ``block`` centroids; and -inf everywhere in the scores.

    The grid is (rows / group, clusters / block), rounded up. Of equal distances, the first counts.

    Args:
        states: (rows, width).
        centroids: (clusters, width).
        norms: (clusters,) float32, the squared lengths.
        distances: (rows, parts) float32, is written; see :func:`.clusters.distances`.
        owners: (rows, parts) int32, is written.
        out: (rows, vocabulary) float32, is written unless ``fill`` is 0.
        rows: states.
        group: states of a program.
        width, clusters, vocabulary: sizes.
        chunk: see :func:`_products`.
        block: centroids of a program.
        fill: numbers that a program writes at a time, or 0.
    """
    part, parts = tl.program_id(1), tl.num_programs(1)
    candidates = part * block + tl.arange(0, block)
    real = candidates < clusters
    norm = tl.load(norms + candidates, mask=real, other=float("inf"))
    number = tl.program_id(0) * group
    last = tl.minimum(number + group, rows)
    while number < last:  # The interpreter's ranges take no tensors with NumPy 2.4.
        row = number.to(tl.int64)
        products = _products(states + row * width, centroids, candidates, real, width, chunk, block)
        distance = norm - 2 * products
        nearest = tl.min(distance, 0)
        # Whatever is not a number has the last one.
        owner = tl.min(tl.where(distance == nearest, candidates, clusters - 1), 0)
        tl.store(distances + row * parts + part, nearest)
        tl.store(owners + row * parts + part, owner)
        if fill > 0:
            for first in range(0, vocabulary, (clusters + block - 1) // block * fill):
                columns = first + part * fill + tl.arange(0, fill)
                nothing = tl.full((fill,), float("-inf"), tl.float32)
                tl.store(out + row * vocabulary + columns, nothing, mask=columns < vocabulary)
        number += 1


@triton.jit(do_not_specialize=["suppressed_id"])
def score_parts(
    states: tl.tensor,
    weight: tl.tensor,
    bias: tl.tensor,
    offsets: tl.tensor,
    tokens: tl.tensor,
    distances: tl.tensor,
    owners: tl.tensor,
    out: tl.tensor,
    tops: tl.tensor,
    totals: tl.tensor,
    bests: tl.tensor,
    choices: tl.tensor,
    scale: tl.tensor,
    suppressed_id: tl.tensor,
    width: tl.constexpr,
    clusters: tl.constexpr,
    vocabulary: tl.constexpr,
    chunk: tl.constexpr,
    block: tl.constexpr,
    candidates: tl.constexpr,
    span: tl.constexpr,
    biased: tl.constexpr,
    scattered: tl.constexpr,
) -> None:
    """Scores of a part of the active tokens of a state, and what the whole needs to know of them.

    The grid is (rows, parts). Rows come first, so that programs that run at the same time read
    the same weights: tokens rise, and the parts of all clusters share the vocabulary alike.

    Args:
        states: (rows, width).
        weight: (vocabulary, width).
        bias: (vocabulary,), if ``biased``.
        offsets: (clusters + 1,) long; see :class:`.Clusters`.
        tokens: (…,) int32, the same.
        distances: (rows, candidates) of :func:`nearest_of_parts`.
        owners: (rows, candidates) of it.
        out: (rows, vocabulary) float32, is written at active tokens if ``scattered``.
        tops: (rows, parts) float32, is written: the greatest score.
        totals: (rows, parts) float32, is written: the sum of exponentials of scores less that.
        bests: (rows, parts) float32, is written: the greatest score that is not ruled out.
        choices: (rows, parts) int32, is written: the first token that has it; 0 if it is -inf.
        scale: multiplies the scores.
        suppressed_id: a token that is ruled out, or -1.
        width, clusters, vocabulary: sizes.
        chunk: see :func:`_products`.
        block: tokens that are scored at a time.
        candidates: the parts of :func:`nearest_of_parts`.
        span: a power of 2 that is not less.
        biased: whether there is a bias.
        scattered: whether scores are wanted.
    """
    row = tl.program_id(0).to(tl.int64)
    part, parts = tl.program_id(1), tl.num_programs(1)
    each = tl.arange(0, span)
    at, real = row * candidates + each, each < candidates
    distance = tl.load(distances + at, mask=real, other=float("inf"))
    owner = tl.load(owners + at, mask=real, other=clusters - 1)
    own = tl.min(tl.where(distance == tl.min(distance, 0), owner, clusters - 1), 0)
    begin = tl.load(offsets + own)
    size = (tl.load(offsets + own + 1) - begin).to(tl.int32)
    share = tl.cdiv(size, parts)
    start = part * share
    last = tl.minimum(start + share, size)

    lanes = tl.arange(0, block)
    # A finite number, which can be subtracted from -inf.
    top = tl.full((block,), -3.4e38, tl.float32)
    total = tl.zeros((block,), tl.float32)
    best = tl.full((block,), float("-inf"), tl.float32)
    choice = tl.zeros((block,), tl.int32)
    while start < last:
        index = start + lanes
        active = index < last
        token = tl.load(tokens + begin + index, mask=active, other=0)
        score = _products(states + row * width, weight, token, active, width, chunk, block)
        if biased:
            score += tl.load(bias + token, mask=active, other=0.0).to(tl.float32)
        score = tl.where(active, score * scale, float("-inf"))
        higher = tl.maximum(top, score)
        total = total * tl.exp(top - higher) + tl.exp(score - higher)
        top = higher
        score = tl.where(token == suppressed_id, float("-inf"), score)
        if scattered:
            tl.store(out + row * vocabulary + token, score, mask=active)
        # Tokens rise: the first of equal ones stays.
        better = score > best
        best = tl.where(better, score, best)
        choice = tl.where(better, token, choice)
        start += block

    at = row * parts + part
    highest, greatest = tl.max(top, 0), tl.max(best, 0)
    tl.store(tops + at, highest)
    tl.store(totals + at, tl.sum(total * tl.exp(top - highest), 0))
    tl.store(bests + at, greatest)
    tl.store(choices + at, tl.min(tl.where(best == greatest, choice, vocabulary), 0))
