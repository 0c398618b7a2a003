"""NgramLookup of the tokens to come, for Jacobi solvers: nothing is trained, and no model asked.

A guess has an origin: an initial guess (paper 000, INITT), the verifier's word on that place
in the last iteration (the Jacobi iterate), what followed the same symbols earlier in the source
or the output, or what followed them in the sentences before. Where several offer a token, the
origin that was right most often so far is believed.

:class:`.one_call.NativeNgramLookup` does the same in one call of the kernels.
"""

from typing import List, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ...decoding.state import Batch, Draft, Rows

#: Matches with so many symbols or more count alike; the pool has n-grams of so many orders.
LONGEST_MATCH, ORDERS = 4, 3
#: Numbers of the origins. Matches of each length and n-grams of each order are origins of their
#: own, after the first of them.
INITIAL, ITERATE, MATCH = 0, 1, 2
POOL = MATCH + LONGEST_MATCH
ORIGINS = POOL + ORDERS
#: How often each origin is right, before anything is known; counts as so many tries. More than
#: they really are, lest one is never tried.
_PRIOR = (0.3, *[0.5] * (ORIGINS - 1))
_PRIOR_TRIES = 8
#: With more tries, all are halved: what happened lately counts.
_MEMORY = 500
#: An entry of the pool is a tag, which tells n-grams of the same place apart, and a symbol.
_SYMBOLS, _TAGS = 1 << 24, 1 << 32


class Window(NamedTuple):
    """Which places are guessed.

    Attributes:
        block: most guesses a row.
        size: b of blocks that follow each other, of which the first token is no guess (paper
            000, Algorithm 2); 0: as many guesses everywhere.
        floor: guesses end where the chance that all of them are right falls below this.
    """

    block: int
    size: int = 0
    floor: float = 0.0

    def widths(self, lengths: Tensor, until: int) -> Tensor:
        """How many places may be guessed.

        Args:
            lengths: (rows,) tokens that are chosen.
            until: places from here on are not guessed.

        Returns:
            (rows,).
        """
        end = lengths + self.block + 1
        if self.size > 0:
            end = torch.minimum(end, (lengths // self.size + 1) * self.size)
        return (end.clamp(max=until) - lengths - 1).clamp(min=0)


class Record:
    """What is remembered from batch to batch.

    Args:
        entries: n-grams of each order that are kept; 0: none.
        device: where.

    Attributes:
        tries: (ORIGINS,) how often a guess was judged.
        hits: (ORIGINS,) how often it was right.
        pool: (ORDERS, entries) what followed n symbols, at their hash, or -1; None without.
    """

    def __init__(self, entries: int, device: torch.device) -> None:
        prior = torch.tensor(_PRIOR, dtype=torch.double, device=device)
        self.tries = torch.full_like(prior, _PRIOR_TRIES)
        self.hits = prior * _PRIOR_TRIES
        self.pool: Optional[Tensor] = None
        if entries > 0:
            self.pool = torch.full((ORDERS, entries), -1, dtype=torch.long, device=device)

    def judged(self, origins: Tensor, right: Tensor, counts: Tensor) -> None:
        """Count how guesses turned out.

        Args:
            origins: (rows, m).
            right: (rows, m) whether each was.
            counts: (rows, m) whether it counts.
        """
        self.tries.scatter_add_(0, origins.flatten(), counts.flatten().double())
        self.hits.scatter_add_(0, origins.flatten(), (right & counts).flatten().double())
        halved = 1 - 0.5 * (self.tries > _MEMORY).double()
        self.tries *= halved
        self.hits *= halved

    def followers(self, line: Tensor, order: int) -> Tensor:
        """(rows,) what followed the last ``order`` symbols of ``line``, (rows, length), or -1."""
        assert self.pool is not None
        places, tags = self._places(line[:, -order:])
        found = self.pool[order - 1][places]
        known = (found >= 0) & (found // _SYMBOLS == tags)
        return torch.where(known, found % _SYMBOLS, -1)

    def learn(self, line: Tensor, order: int, new: Tensor) -> None:
        """Note what follows ``order`` symbols.

        Args:
            line: (rows, length) symbols.
            order: n.
            new: (rows, length) where a symbol is new.
        """
        assert self.pool is not None
        if line.size(1) <= order:
            return
        places, tags = self._places(line[:, :-1].unfold(1, order, 1))
        fresh = new[:, order:]
        self.pool[order - 1][places[fresh]] = (tags * _SYMBOLS + line[:, order:])[fresh]

    def _places(self, symbols: Tensor) -> Tuple[Tensor, Tensor]:
        """Where the pool keeps what followed these symbols, (…, order), and their tag."""
        assert self.pool is not None
        hashed = symbols[..., 0]
        for place in range(1, symbols.size(-1)):
            hashed = hashed * 1000003 + symbols[..., place]
        entries = self.pool.size(1)
        return hashed % entries, hashed // entries % _TAGS


class NgramLookup:
    """NgramLookup for the rows of a batch, on PyTorch's operators.

    Args:
        window: which places are guessed.
        record: what was learned before.
        eos: nothing is guessed behind it.
        source: (rows, length) symbols to find matches in, -1 where the output has no such
            symbol; None: matches are no origin.
        rows: how many.
    """

    def __init__(
        self, window: Window, record: Record, eos: int, source: Optional[Tensor], rows: int
    ) -> None:
        self._window, self._record, self._eos, self._source = window, record, eos, source
        # (rows,) places that the iterate speaks of; later ones are initial guesses.
        self._known = torch.zeros(rows, dtype=torch.long, device=record.tries.device)
        # Lengths before the draft, (rows,); its tokens and their origins, (rows, m); how many.
        nothing = self._known.new_zeros(rows, 0)
        self._drafted = [self._known, nothing, nothing, self._known]

    def guess(self, rows: Rows, until: int) -> Draft:
        """Learn how the last draft turned out, and make the next one.

        Args:
            rows: the rows.
            until: places from here on are not guessed.
        """
        assert rows.iterate is not None
        self.learn(rows)
        widths = self._window.widths(rows.lengths, until)
        most = min(self._window.block, max(0, until - rows.shortest - 1))
        known = self._known
        chance = torch.ones_like(rows.lengths, dtype=torch.double)
        counts = torch.zeros_like(rows.lengths)
        going = torch.ones_like(rows.lengths, dtype=torch.bool)
        line = self._line(rows)  # (rows, length) ending with the newest symbol of each row
        tokens, origins = [rows.inputs[:, :0]], [rows.inputs[:, :0]]
        for place in range(most):
            where = rows.lengths + place
            said = rows.iterate.gather(1, where.clamp(max=rows.iterate.size(1) - 1).unsqueeze(1))
            token, origin = self._best(rows, line, said.squeeze(1), where < known)
            chance = chance * (self._record.hits[origin] / self._record.tries[origin])
            going = going & (place < widths) & (chance >= self._window.floor)
            counts = counts + going.long()
            tokens.append(token.unsqueeze(1))
            origins.append(origin.unsqueeze(1))
            line = torch.cat([line, token.unsqueeze(1)], dim=1)
            going = going & token.ne(self._eos)
        self._known = rows.lengths + counts + 1
        draft = torch.cat(tokens, dim=1)
        self._drafted = [rows.lengths, draft, torch.cat(origins, dim=1), counts]
        return Draft(draft, counts)

    def _line(self, rows: Rows) -> Tensor:
        """(rows, LONGEST_MATCH) the last symbols of each row, -2 before the first."""
        padded = F.pad(rows.inputs, (LONGEST_MATCH - 1, 0), value=-2)
        place = rows.lengths.unsqueeze(1) + torch.arange(LONGEST_MATCH, device=padded.device)
        return padded.gather(1, place)

    def _best(self, rows: Rows, line: Tensor, said: Tensor, known: Tensor) -> "List[Tensor]":
        """(rows,) tokens, and (rows,) origins."""
        offers = [said]
        origins = [known.long() * ITERATE]
        if self._source is not None:
            token, longest = self._match(rows, line)
            offers.append(token)
            origins.append(MATCH + longest.clamp(min=1) - 1)
        if self._record.pool is not None:
            for order in range(1, ORDERS + 1):
                begun = (line[:, -order:] >= 0).all(1)
                follower = self._record.followers(line.clamp(min=0), order)
                offers.append(follower.masked_fill(~begun, -1))
                origins.append(torch.full_like(said, POOL + order - 1))
        offered, origin = torch.stack(offers, dim=1), torch.stack(origins, dim=1)
        rates = self._record.hits[origin] / self._record.tries[origin]
        rates[:, 1:].masked_fill_(offered[:, 1:] < 0, -1.0)
        best = rates.argmax(1, keepdim=True)
        return [offered.gather(1, best).squeeze(1), origin.gather(1, best).squeeze(1)]

    def _match(self, rows: Rows, line: Tensor) -> "List[Tensor]":
        """What follows the longest end of the line that the source or the output has too.

        Of several, the last in the output, else in the source.

        Returns:
            (rows,) tokens, -1 where nothing matches, and (rows,) lengths of the match.
        """
        assert self._source is not None
        place = torch.arange(rows.longest, device=line.device)
        output = rows.inputs[:, 1 : rows.longest + 1]
        output = output.masked_fill(place >= rows.lengths.unsqueeze(1), -1)
        gap = output.new_full((rows.size, 1), -3)
        text = torch.cat([self._source, gap, output], dim=1)  # (rows, length)
        windows = F.pad(text, (LONGEST_MATCH, 0), value=-3)[:, :-1].unfold(1, LONGEST_MATCH, 1)
        tail = line[:, -LONGEST_MATCH:].unsqueeze(1)
        equal = (windows == tail).flip(2).long()
        lengths = equal.cumprod(2).sum(2).masked_fill(text < 0, 0)  # (rows, length)
        # A place is worth its match, and of equal ones the last most.
        worth = lengths * text.size(1) + torch.arange(text.size(1), device=text.device)
        best = worth.masked_fill(lengths == 0, -1).argmax(1, keepdim=True)
        longest = lengths.gather(1, best).squeeze(1)
        token = text.gather(1, best).squeeze(1)
        return [token.masked_fill(longest == 0, -1), longest]

    def learn(self, rows: Rows) -> None:
        """Note how the last draft turned out, and what follows what in the new tokens.

        A guess does so first; rows that leave must be learned from before.
        """
        before, tokens, origins, counts = self._drafted
        place = torch.arange(rows.inputs.size(1), device=before.device)
        width = tokens.size(1)
        if width > 0:
            index = (before.unsqueeze(1) + 1 + place[:width]).clamp(max=rows.inputs.size(1) - 1)
            right = rows.inputs.gather(1, index) == tokens
            added = (rows.lengths - before).unsqueeze(1)
            judged = (place[:width] < counts.unsqueeze(1)) & (place[:width] < added)
            # What rests on a wrong guess says nothing.
            first = F.pad(right.long().cumprod(1), (1, 0), value=1)[:, :-1].bool()
            self._record.judged(origins, right, judged & first)
        if self._record.pool is not None:
            new = (place > before.unsqueeze(1)) & (place <= rows.lengths.unsqueeze(1))
            for order in range(1, ORDERS + 1):
                self._record.learn(rows.inputs, order, new)
        nothing = tokens[:, :0]
        self._drafted = [rows.lengths, nothing, nothing, torch.zeros_like(rows.lengths)]

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._known = self._known[rows]
        self._drafted = [each[rows] for each in self._drafted]
        if self._source is not None:
            self._source = self._source[rows]


def initial_guesses(
    kind: str, batch: Batch, symbols: Tensor, width: int, source: Optional[Tensor]
) -> Tensor:
    """The iterate before the first iteration (paper 000, section 3.3).

    Args:
        kind: ``source``: the source's symbols, each at its own place; ``random``: any
            symbols, at a place always the same; others: padding.
        batch: the batch.
        symbols: symbols that may be guessed at random.
        width: places.
        source: (rows, length) the source in symbols of the output, or -1.

    Returns:
        (rows, width).
    """
    pad = batch.constraints.pad
    table = torch.full((batch.size, width), pad, dtype=torch.long, device=batch.device)
    if kind == "random":
        generator = torch.Generator().manual_seed(1)
        drawn = torch.randint(len(symbols), (width,), generator=generator)
        return table.copy_(symbols[drawn])
    if kind == "source":
        assert source is not None
        known = source >= 0
        # Without what the output has no symbol for, padding on the left among it.
        place = (known.long().cumsum(1) - 1).masked_fill(~known, width)
        table = F.pad(table, (0, 1)).scatter(1, place.clamp(max=width), source.clamp(min=0))
        table = table[:, :width].contiguous()
    return table
