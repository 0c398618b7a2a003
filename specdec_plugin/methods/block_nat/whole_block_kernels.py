"""A Triton kernel that chooses all tokens of a drafted block. Importing this needs Triton.

It computes what :class:`.ChainHead` does; see :class:`.CudaChain` for the tables.
"""

import triton
import triton.language as tl

from ...engine.early_kernels import wait_for_others
from .chain_kernels import NO_KEY, keys_of, token_of

#: Stands for a key that has not come: more than the key of any score.
_NONE: tl.constexpr = tl.constexpr(2**63 - 1)
#: What counts instead of a score that is not a number.
_LOWEST: tl.constexpr = tl.constexpr(-3.0e38)


@triton.jit
def _sent(
    keys: tl.tensor, entering: tl.tensor, position: tl.tensor, length: tl.tensor,
    polls: tl.tensor, units: tl.constexpr, columns: tl.constexpr, parts: tl.constexpr,
    patience: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """What all programs have sent for a position, when it has come.

    Args:
        keys, entering, length, units, columns, parts, patience: see :func:`choose_block`.
        position: in the block, or its end.
        polls: how often was looked so far.

    Returns:
        the greatest key of the position before, what enters the layer at this one, (columns,), and
        how often was looked then.
    """
    each = tl.arange(0, columns)
    chosen, enters = (each < parts) & (position > 0), (each < units) & (position < length)
    best, inner = tl.full((), _NONE, tl.int64), tl.zeros((columns,), tl.float32)
    while (best == _NONE) & (polls < patience):
        where = keys + (position - 1) * parts + each
        key = tl.load(where, mask=chosen, other=NO_KEY, volatile=True)
        where = entering + position * units + each
        inner = tl.load(where, mask=enters, other=0.0, volatile=True)
        # One exchange between warps tells whether something is missing, and what is best.
        best = tl.max(tl.where(inner != inner, _NONE, key), 0)
        polls += 1
    return best, inner, polls


@triton.jit(do_not_specialize=["length"])
def choose_block(
    last: tl.tensor, states: tl.tensor, of_states: tl.tensor, bias: tl.tensor,
    by_token: tl.tensor, matrix: tl.tensor, entering: tl.tensor, keys: tl.tensor,
    tokens: tl.tensor, length: tl.tensor, vocabulary: tl.constexpr, units: tl.constexpr,
    dim: tl.constexpr, inputs: tl.constexpr, columns: tl.constexpr, vectors: tl.constexpr,
    block: tl.constexpr, parts: tl.constexpr, patience: tl.constexpr, early: tl.constexpr,
) -> None:  # fmt: skip
    """All tokens of a row's block. The grid is ((vocabulary + units) / block,), rounded up.

    All programs have to run at once: each has its lines of the matrix in registers, and waits at
    each position for what the others found at the one before. What is sent is its own sign that it
    has come: where nothing has come, a key is ``_NONE``, and what enters is not a number. So it is
    before the first run, and each run leaves it so. A program that has waited too long continues
    with what has come. Then the draft is wrong, which verification finds.

    Args:
        last: (1,) long, the token before the block.
        states: (length, dim).
        of_states: (vocabulary + units, dim), what the states bring.
        bias: (vocabulary + units,), is added to it.
        by_token: (vocabulary, units), what each token brings into the layer.
        matrix: (vocabulary + units, units), what the layer brings.
        entering: (length, units) float32, what the layer takes at each position, but for its token.
        keys: (length, parts) long, the greatest key of each part.
        tokens: (length,) long, is written.
        length: positions of the block.
        vocabulary, units, dim: sizes.
        inputs, vectors: powers of 2 that are not less than ``dim`` and ``length``, and at least 16.
        columns: a power of 2 that is not less than ``units``, ``parts``, and a program's threads:
            else two threads would look for the same number, and only one of them is asked.
        block: lines of the matrix of a program, a power of 2, at least 16.
        parts: programs with tokens.
        patience: how often a program looks for what others send, in all.
        early: see :mod:`...engine.early_kernels`.
    """
    part = tl.program_id(0)
    lines: tl.constexpr = vocabulary + units
    line, column = part * block + tl.arange(0, block), tl.arange(0, columns)
    read = (line < lines)[:, None] & (column < units)[None, :]
    weights = tl.load(matrix + line[:, None] * units + column[None, :], mask=read, other=0.0)
    entry, number = tl.arange(0, inputs), tl.arange(0, vectors)
    read = (line < lines)[:, None] & (entry < dim)[None, :]
    maps = tl.load(of_states + line[:, None] * dim + entry[None, :], mask=read, other=0.0)
    biases = tl.load(bias + line, mask=line < lines, other=0.0).to(tl.float32)
    wait_for_others(early)
    read = (entry < dim)[:, None] & (number < length)[None, :]
    hidden = tl.load(states + number[None, :] * dim + entry[:, None], mask=read, other=0.0)
    first = tl.load(last)
    offsets = tl.dot(maps, hidden) + biases[:, None]
    weights = weights.to(tl.float32)
    is_unit = (line >= vocabulary) & (line < lines)
    entered = tl.sum(tl.where(number[None, :] == 0, offsets, 0.0), 1)
    entered = tl.where(entered == entered, entered, _LOWEST)
    tl.store(entering + line - vocabulary, entered, mask=is_unit)
    position, polls = 0, 0
    # Nothing enters behind the last position: who has units only is done before it.
    while position < length - (part >= parts).to(tl.int32):
        at = position + is_unit.to(tl.int32)
        offset = tl.sum(tl.where(number[None, :] == at[:, None], offsets, 0.0), 1)
        best, inner, polls = _sent(
            keys, entering, position, length, polls, units, columns, parts, patience
        )  # fmt: skip
        chosen = tl.minimum(token_of(best), vocabulary - 1)
        token = tl.where(position == 0, first, chosen)
        brought = tl.load(by_token + token * units + column, mask=column < units, other=0.0)
        layer = tl.maximum(inner + brought.to(tl.float32), 0.0)
        sums = tl.sum(weights * layer[None, :], 1) + offset
        sums = tl.where(sums == sums, sums, _LOWEST)
        own = tl.where(line < vocabulary, keys_of(sums, line), NO_KEY)
        tl.store(keys + position * parts + part, tl.max(own, 0), mask=part < parts)
        sent = entering + line - vocabulary
        tl.store(sent + (position + 1) * units, sums, mask=is_unit & (position + 1 < length))
        # Nobody reads these any more: who has sent this position's is done with those before.
        tl.store(keys + (position - 2) * parts + part, _NONE, mask=(part < parts) & (position > 1))
        tl.store(sent + (position - 1) * units, float("nan"), mask=is_unit & (position > 0))
        tl.store(tokens + position - 1, chosen, mask=(part == 0) & (position > 0))
        position += 1
    if polls >= patience:  # Others may have left before this program sent its last ones.
        for back in tl.static_range(2):
            left = tl.maximum(length - 1 - back, 0)
            tl.store(keys + left * parts + part, _NONE, mask=part < parts)
            sent = entering + left * units + line - vocabulary
            tl.store(sent, float("nan"), mask=is_unit)
    if part == 0:
        best, inner, polls = _sent(
            keys, entering, length, length, polls, units, columns, parts, patience
        )  # fmt: skip
        tl.store(tokens + length - 1, tl.minimum(token_of(best), vocabulary - 1))
        for back in tl.static_range(2):
            left = tl.maximum(length - 1 - back, 0)
            tl.store(keys + left * parts + column, _NONE, mask=column < parts)
            tl.store(entering + left * units + column, float("nan"), mask=column < units)
