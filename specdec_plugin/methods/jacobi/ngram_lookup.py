"""N-gram lookup: tokens to come, for Jacobi solvers, without training and without a model.

A drafted token has an origin: an initial guess (Santilli et al., 2023, INITT), the verifier's
argmax at that position in the last iteration (the Jacobi iterate), what followed the same symbols
earlier in the source or the output, or what followed them in earlier sentences. Where several
origins offer a token, the one that was right most often so far wins.

``ngram_lookup.h`` does the same in one native call for all rows.
"""

from typing import Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from ...decoding.state import Batch, Draft, Outcome, Rows
from ...engine.native.interface import constants

#: Matches with so many symbols or more count alike; the pool has n-grams of so many orders.
LONGEST_MATCH, ORDERS = 4, 3
#: Numbers of the origins. Matches of each length and n-grams of each order are origins of their
#: own, after the first of them.
INITIAL, ITERATE, MATCH = 0, 1, 2
POOL = MATCH + LONGEST_MATCH
ORIGINS = POOL + ORDERS
#: How often each origin is right, before anything is known; counts as so many tries. The rates
#: are higher than real ones, so that each origin is tried.
_PRIOR = (0.3, *[0.5] * (ORIGINS - 1))
_PRIOR_TRIES = 8
#: With more tries all are halved, so that recent ones count most.
MEMORY = 500
#: An entry of the pool is a tag, which tells n-grams at the same position apart, and a symbol.
POOL_SYMBOLS = 1 << 24
#: A hash has 64 bits. The upper half chooses the position, without a division, which would take
#: longer than all else; the lower half is the tag. The mixer is Knuth's multiplier (MMIX).
HASH_FACTOR, HASH_MIXER = 1000003, 6364136223846793005

constants(
    LONGEST_MATCH=LONGEST_MATCH,
    ORDERS=ORDERS,
    INITIAL=INITIAL,
    ITERATE=ITERATE,
    MATCH=MATCH,
    POOL=POOL,
    ORIGINS=ORIGINS,
    MEMORY=MEMORY,
    POOL_SYMBOLS=POOL_SYMBOLS,
    HASH_FACTOR=HASH_FACTOR,
    HASH_MIXER=HASH_MIXER,
)


class Window(NamedTuple):
    """Which positions are drafted.

    Attributes:
        block: the most drafted tokens of a row.
        size: b of consecutive blocks whose first token is not drafted (Santilli et al., 2023,
            Algorithm 2); 0: as many drafted tokens everywhere.
        floor: a draft ends before the chance that all of it is right falls below this.
    """

    block: int
    size: int = 0
    floor: float = 0.0

    def width(self, length: int, until: int) -> int:
        """How many positions may be drafted.

        Args:
            length: tokens that are chosen.
            until: positions from here on are not drafted.
        """
        end = min(length + self.block + 1, until)
        if self.size > 0:
            end = min(end, (length // self.size + 1) * self.size)
        return max(0, end - length - 1)


class Record:
    """What is remembered from batch to batch.

    Args:
        entries: n-grams of each order that are kept; 0: none.

    Attributes:
        tries: (ORIGINS,) float64, how often a token of each origin was judged.
        hits: (ORIGINS,) float64, how often it was right.
        pool: (ORDERS, entries) int64, what followed n symbols, at their hash, or -1; or None.
    """

    def __init__(self, entries: int) -> None:
        self.tries = np.full(ORIGINS, float(_PRIOR_TRIES))
        self.hits = np.array(_PRIOR) * _PRIOR_TRIES
        self.pool = np.full((ORDERS, entries), -1, dtype=np.int64) if entries > 0 else None

    def rate(self, origin: int) -> float:
        """How often tokens of an origin were right so far."""
        return float(self.hits[origin] / self.tries[origin])

    def fade(self) -> None:
        """Halve the counts of origins with many tries."""
        often = self.tries > MEMORY
        self.tries[often] /= 2
        self.hits[often] /= 2

    def follower(self, symbols: List[int]) -> int:
        """What followed these symbols last, or -1."""
        assert self.pool is not None
        position, tag = self._position(symbols)
        entry = int(self.pool[len(symbols) - 1, position])
        return entry % POOL_SYMBOLS if entry >= 0 and entry // POOL_SYMBOLS == tag else -1

    def learn(self, line: List[int], first: int) -> None:
        """Note what the symbols from ``line[first]`` on followed."""
        if self.pool is None:
            return
        for end in range(first, len(line)):
            for order in range(1, min(ORDERS, end) + 1):
                position, tag = self._position(line[end - order : end])
                self.pool[order - 1, position] = tag * POOL_SYMBOLS + line[end]

    def learn_all(self, lines: List[List[int]], lengths: List[int]) -> None:
        """Note the same of whole sentences: the first symbol, and so many behind it."""
        for line, length in zip(lines, lengths):
            self.learn(line[: 1 + length], 1)

    def _position(self, symbols: List[int]) -> Tuple[int, int]:
        """Where the pool keeps what followed these symbols, and their tag."""
        assert self.pool is not None
        hashed, entries = 0, self.pool.shape[1]
        for symbol in symbols:
            hashed = hashed * HASH_FACTOR + symbol
        upper, tag = divmod(hashed * HASH_MIXER % (1 << 64), 1 << 32)
        return upper * entries >> 32, tag


class NgramLookup:
    """Drafts for the rows of a batch, in plain Python.

    Args:
        window: which positions are drafted.
        record: what was learned before.
        eos: ends a draft.
        source: (rows, length) on the CPU, symbols to find matches in, -1 where the output has no
            such symbol; None: matches are no origin.
        initial: (rows, positions) on the CPU, initial guesses.
    """

    def __init__(
        self,
        window: Window,
        record: Record,
        eos: int,
        source: Optional[Tensor],
        initial: Tensor,
    ) -> None:
        self._window, self._record, self._eos = window, record, eos
        self._sources: List[Optional[List[int]]] = [None] * initial.size(0)
        if source is not None:
            self._sources = source.tolist()
        self._iterates: List[List[int]] = initial.tolist()
        self._known = [0] * initial.size(0)  # positions with an argmax; later ones are initial
        self._lengths = [0] * initial.size(0)  # before the draft
        self._drafts: List[List[Tuple[int, int]]] = [[] for _ in self._lengths]

    def draft(self, rows: Rows, until: int, most: Optional[Tensor] = None) -> Draft:
        """The next draft.

        Args:
            rows: the rows.
            until: positions from here on are not drafted.
            most: (rows,) long on the CPU, tokens that each row may propose; None: any number.
        """
        lines = [rows.line(row) for row in range(rows.size)]
        for row, line in enumerate(lines):
            # A row may have been decoded without drafts up to here.
            self._record.learn(line, self._lengths[row] + 1)
            self._lengths[row] = len(line) - 1
        self._drafts = [self._draft(row, line, until) for row, line in enumerate(lines)]
        if most is not None:  # What is cut off here is not judged.
            self._drafts = [draft[:left] for draft, left in zip(self._drafts, most.tolist())]
        tokens = [[token for token, _ in draft] for draft in self._drafts]
        return Draft.of(tokens, rows.inputs.device)

    def _draft(self, row: int, line: List[int], until: int) -> List[Tuple[int, int]]:
        """Tokens and their origins for one row, which begins with ``line``."""
        length, line = len(line) - 1, list(line)
        output, chance = line[1:], 1.0
        draft: List[Tuple[int, int]] = []
        for position in range(length, length + self._window.width(length, until)):
            token, origin = max(
                self._offers(row, position, line, output),
                key=lambda offer: self._record.rate(offer[1]),
            )
            chance *= self._record.rate(origin)
            if chance < self._window.floor:
                break
            draft.append((token, origin))
            line.append(token)
            if token == self._eos:
                break
        return draft

    def _offers(
        self, row: int, position: int, line: List[int], output: List[int]
    ) -> Iterator[Tuple[int, int]]:
        """What each origin offers behind ``line``: a token and the origin."""
        origin = ITERATE if position < self._known[row] else INITIAL
        yield self._iterates[row][position], origin
        source = self._sources[row]
        if source is not None:
            token, length = longest_match(source, output, line)
            if token >= 0:
                yield token, MATCH + length - 1
        if self._record.pool is not None:
            for order in range(1, min(ORDERS, len(line)) + 1):
                token = self._record.follower(line[-order:])
                if token >= 0:
                    yield token, POOL + order - 1

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        """Learn how the draft turned out, and what follows what in the new tokens."""
        assert outcome.argmax is not None
        for row, argmax in enumerate(outcome.argmax.tolist()):
            line, before = rows.line(row), self._lengths[row]
            self._judge(row, line[before + 1 :])
            self._record.learn(line, before + 1)
            known = argmax[: outcome.drafted[row] + 1]
            self._iterates[row][before : before + len(known)] = known
            self._known[row] = before + len(known)
            self._lengths[row] = len(line) - 1
        self._record.fade()

    def _judge(self, row: int, added: List[int]) -> None:
        """Count drafted tokens up to the first wrong one, on which the later ones rest."""
        for (token, origin), right in zip(self._drafts[row], added):
            self._record.tries[origin] += 1
            self._record.hits[origin] += token == right
            if token != right:
                break
        self._drafts[row] = []

    def select(self, rows: Tensor) -> None:
        """Continue with these rows."""
        kept = rows.tolist()
        for name in ("_sources", "_iterates", "_known", "_lengths", "_drafts"):
            values = getattr(self, name)
            setattr(self, name, [values[row] for row in kept])


def longest_match(source: List[int], output: List[int], line: List[int]) -> Tuple[int, int]:
    """What follows the longest end of the line that the source or the output has too.

    Of several matches, the last one in the output counts, else the last one in the source.

    Returns:
        the token, -1 where nothing matches, and the length of the match, at most LONGEST_MATCH.
    """
    found, longest = -1, 1
    for text in (source, output):
        for position in range(1, len(text)):
            most = min(position, len(line), LONGEST_MATCH)
            match = 0
            while match < most and text[position - 1 - match] == line[-1 - match]:
                match += 1
            if match >= longest and text[position] >= 0:
                found, longest = text[position], match
    return found, longest


def initial_guesses(
    kind: str, batch: Batch, symbols: Tensor, width: int, source: Optional[Tensor]
) -> Tensor:
    """The iterate before the first iteration (Santilli et al., 2023, section 3.3).

    Args:
        kind: ``source``: the source's symbols, each at its own position; ``random``: random
            symbols, at a position always the same; others: padding.
        batch: the batch.
        symbols: symbols that may be guessed at random.
        width: positions.
        source: (rows, length) the source in symbols of the output, or -1.

    Returns:
        (rows, width), on the CPU.
    """
    pad = batch.constraints.pad
    table = torch.full((batch.size, width), pad, dtype=torch.long)
    if kind == "random":
        generator = torch.Generator().manual_seed(1)
        drawn = torch.randint(len(symbols), (width,), generator=generator)
        return table.copy_(symbols[drawn])
    if kind == "source":
        assert source is not None
        known = source >= 0
        # Without what the output has no symbol for, padding on the left among it.
        position = (known.long().cumsum(1) - 1).masked_fill(~known, width)
        table = F.pad(table, (0, 1)).scatter(1, position.clamp(max=width), source.clamp(min=0))
        table = table[:, :width].contiguous()
    return table
