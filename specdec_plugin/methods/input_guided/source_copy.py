"""Where output and source agree, and what follows there (Ge et al., 2022, Algorithm 1).

The shortest end of the output that occurs in the source exactly once marks the position. One list
a row finds it: how many symbols before each position of the source are the last ones of the
output. An end of the output is unique where the maximum is.

``source_copy.h`` does the same in one native call for all rows.
"""

from typing import List, Sequence, Tuple

import torch
from torch import Tensor

from ...decoding.state import Batch, Draft, Rows
from ...decoding.symbols import Symbols
from ...fairseq_compat.late_input import on_host

#: How far away a match of a single symbol counts: an edit rarely adds or removes more symbols, and
#: frequent symbols match at many positions.
NEAR = 4


def sources_of(batch: Batch, symbols: Symbols) -> Tuple[Tensor, Tensor]:
    """What can be copied.

    Args:
        batch: of the sources.
        symbols: of the dictionaries.

    Returns:
        on the CPU, where the search for single symbols is fast: (rows, length) the source in
        symbols of the output, -1 where it has none; and (rows,) where each source begins.
    """
    tokens = on_host(batch.net_input)["src_tokens"].cpu()
    # fairseq pads on the left.
    starts = tokens.eq(symbols.source_pad).long().cumprod(1).sum(1)
    return symbols.source(tokens), starts


def follow(matches: List[int], source: List[int], token: int) -> List[int]:
    """The matches of a row, lengthened by a new token of the output; see :func:`start_matches`."""
    pairs = zip(matches, source)
    return [0, *(match + 1 if symbol == token else 0 for match, symbol in pairs)]


def likeliest(matches: List[int], replacing: int) -> int:
    """The position behind the longest match, of several the one nearest to ``replacing``.

    There the source continues if each chosen symbol replaced one of its own. The result is
    ``replacing`` too if nothing matches but single symbols further than :data:`NEAR` from it.
    """
    most, last = max(matches), len(matches) - 1
    found = [
        position
        for position, match in enumerate(matches)
        if match == most > 0 and (most > 1 or abs(position - replacing) <= NEAR)
    ]
    if not found:
        return min(replacing, last)
    return min(found, key=lambda position: (abs(position - replacing), position))


def start_matches(source: Tensor, starts: Tensor) -> Tensor:
    """The lists before anything is chosen: the start of the source counts as a match.

    Args:
        source: (rows, length).
        starts: (rows,) where each source begins, behind padding.

    Returns:
        (rows, length + 1): how many symbols before each position are the last ones of the output.
    """
    matches = torch.zeros(source.size(0), source.size(1) + 1, dtype=torch.long)
    return matches.scatter_(1, starts.unsqueeze(1), 1)


class SourceMatches:
    """How much of each source is matched by the end of the output.

    Args:
        source: (rows, length) on the CPU, the source in symbols of the output, -1 where the output
            has no such symbol.
        starts: (rows,) on the CPU, where each source begins.
    """

    def __init__(self, source: Tensor, starts: Tensor) -> None:
        self._sources: List[List[int]] = source.tolist()
        self._matches: List[List[int]] = start_matches(source, starts).tolist()
        self._positions: List[int] = starts.tolist()  # where the sources were last continued
        self._seen = [0] * len(self._positions)  # tokens that matches and positions know of

    def select(self, rows: Tensor) -> None:
        """Continue with these rows."""
        kept = rows.tolist()
        for name in ("_sources", "_matches", "_positions", "_seen"):
            values = getattr(self, name)
            setattr(self, name, [values[row] for row in kept])


class SourceCopy(SourceMatches):
    """Copies of the source, in plain Python.

    Args:
        source, starts: see :class:`SourceMatches`.
        block_size: the most tokens of a draft.
        eos: ends a draft.
        longest: of several matches follow one, as :func:`likeliest` does, and continue without
            any.
    """

    def __init__(
        self, source: Tensor, starts: Tensor, block_size: int, eos: int, longest: bool
    ) -> None:
        super().__init__(source, starts)
        self._block_size, self._eos, self._longest = block_size, eos, longest

    def draft(self, rows: Rows) -> Draft:
        """What follows in the source, up to its end: at most ``block_size`` tokens a row."""
        drafts = [self._draft(row, rows.line(row)[1:]) for row in range(rows.size)]
        return Draft.of(drafts, rows.inputs.device)

    def _draft(self, row: int, chosen: List[int]) -> List[int]:
        """The draft of one row with these chosen tokens."""
        replacing = self._positions[row] + len(chosen) - self._seen[row]
        for token in chosen[self._seen[row] :]:
            self._matches[row] = follow(self._matches[row], self._sources[row], token)
        self._seen[row] = len(chosen)
        matches = self._matches[row]
        start = likeliest(matches, replacing) if self._longest else self._unique(matches)
        self._positions[row] = start
        draft: List[int] = []
        for symbol in self._sources[row][start : start + self._block_size]:
            if symbol < 0 or (draft and draft[-1] == self._eos):
                break
            draft.append(symbol)
        return draft

    @staticmethod
    def _unique(matches: List[int]) -> int:
        """The position behind the only longest match; the end of the source if there is none."""
        most = max(matches)
        if most > 0 and matches.count(most) == 1:
            return matches.index(most)
        return len(matches) - 1


class SourceNext(SourceMatches):
    """The token with which the source continues, behind any beginning of the output.

    A position in the source moves with each token of the output, from the start of the source on.
    It moves to where :func:`likeliest` puts it, with the position behind the last one for
    ``replacing``. So it follows from source and output alone, whatever was drafted.
    """

    def after(self, rows: Rows, draft: Draft) -> Tensor:
        """(rows, m + 1) the tokens behind the chosen ones and each drafted one; -1: none."""
        width = draft.tokens.size(1) + 1
        found = []
        for row, drafted in enumerate(draft.on_host()):
            self._catch_up(row, rows.line(row)[1:])
            following = self._following(row, drafted)
            found.append(following + [-1] * (width - len(following)))
        return torch.tensor(found, dtype=torch.long)

    def _catch_up(self, row: int, chosen: List[int]) -> None:
        source, matches, position = self._sources[row], self._matches[row], self._positions[row]
        for token in chosen[self._seen[row] :]:
            matches = follow(matches, source, token)
            position = likeliest(matches, position + 1)
        self._matches[row], self._positions[row], self._seen[row] = matches, position, len(chosen)

    def _following(self, row: int, drafted: Sequence[int]) -> List[int]:
        source, matches, position = self._sources[row], self._matches[row], self._positions[row]
        positions = [position]
        for token in drafted:
            matches = follow(matches, source, token)
            position = likeliest(matches, position + 1)
            positions.append(position)
        ended = [*source, -1]  # behind the last symbol nothing follows
        return [ended[position] for position in positions]
