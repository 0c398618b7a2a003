"""Where output and source agree, and what follows there (paper 002, Algorithm 1).

The shortest end of the output that occurs in the source only once says where. One vector a row
tells it: how many symbols before each place of the source are the last ones of the output. An
end of the output is unique where the maximum is.

:class:`.one_call.NativeSourceCopy` does the same in one call of the kernels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from ...decoding.state import Draft, Rows

#: How far a single symbol that matches is looked for: an edit rarely adds or removes more, and
#: frequent symbols match in many places.
NEAR = 4


def start_matches(source: Tensor, starts: Tensor) -> Tensor:
    """The vectors before anything is chosen: the start of the source counts as a match.

    Args:
        source: (rows, length).
        starts: (rows,) where each source begins, behind padding.

    Returns:
        (rows, length + 1): how many symbols before each place are the last ones of the output.
    """
    matches = F.pad(torch.zeros_like(source), (0, 1))
    return matches.scatter_(1, starts.unsqueeze(1), 1)


class SourceCopy:
    """SourceCopy of the source, on PyTorch's operators.

    Args:
        source: (rows, length) the source in symbols of the output, -1 where it has none.
        starts: (rows,) where each source begins.
        block_size: most tokens of a draft.
        eos: nothing is drafted behind it.
        longest: follow one match where there are several, as :meth:`_likeliest` does, and go
            on without any.
    """

    def __init__(
        self, source: Tensor, starts: Tensor, block_size: int, eos: int, longest: bool
    ) -> None:
        self._source, self._eos, self._longest = source, eos, longest
        self._block_size = min(block_size, source.size(1))
        self._matches = start_matches(source, starts)
        self._seen = torch.zeros_like(starts)
        self._places = starts  # where the last drafts began
        self._known = 0  # the least of them, known to the host

    def draft(self, rows: Rows) -> Draft:
        """What follows in the source, up to its end."""
        replacing = self._places + rows.lengths - self._seen
        self._follow(rows)
        place = self._likeliest(replacing) if self._longest else self._unique()
        self._places = place
        index = place.unsqueeze(1) + torch.arange(self._block_size, device=place.device)
        tokens = F.pad(self._source, (0, self._block_size), value=-1).gather(1, index)
        known = (tokens >= 0).long().cumprod(1)
        behind = F.pad(tokens.eq(self._eos).long().cumsum(1), (1, 0))[:, :-1]
        return Draft(tokens.clamp(min=0), (known * behind.eq(0)).sum(1))

    def _unique(self) -> Tensor:
        """(rows,) the place behind the only longest match, or the end of the source."""
        most = self._matches.max(1, keepdim=True).values
        follows = ((self._matches == most).sum(1) == 1) & (most.squeeze(1) > 0)
        return self._matches.argmax(1).masked_fill(~follows, self._matches.size(1) - 1)

    def _likeliest(self, replacing: Tensor) -> Tensor:
        """(rows,) the place behind the longest match, of several the one nearest to ``replacing``.

        That is where the source goes on if each chosen symbol replaced one of its own. It is also
        the place if nothing matches, or only single symbols that are further than
        :data:`NEAR` from it.
        """
        last = self._matches.size(1) - 1
        apart = torch.arange(last + 1, device=replacing.device) - replacing.unsqueeze(1)
        most = self._matches.max(1, keepdim=True).values
        meant = (self._matches == most) & ((most > 1) | (most > 0) & (apart.abs() <= NEAR))
        order = 2 * apart.abs() + (apart > 0)  # of two as near the one before
        found = order.masked_fill(~meant, 4 * last + 4).argmin(1)
        return torch.where(meant.any(1), found, replacing.clamp(max=last))

    def _follow(self, rows: Rows) -> None:
        """Follow what was added, token by token, all rows at once."""
        for _ in range(rows.longest - self._known):
            fresh = self._seen < rows.lengths
            place = torch.minimum(self._seen + 1, rows.lengths)
            token = rows.inputs.gather(1, place.unsqueeze(1))
            grown = F.pad((self._matches[:, :-1] + 1) * (self._source == token), (1, 0))
            self._matches = torch.where(fresh.unsqueeze(1), grown, self._matches)
            self._seen = self._seen + fresh.long()
        self._known = rows.shortest

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._source, self._matches = self._source[rows], self._matches[rows]
        self._seen, self._places = self._seen[rows], self._places[rows]
