"""Position vectors by row length, from fairseq's learned or sinusoidal tables."""

from typing import Optional

import torch
import torch.nn.functional as F
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from torch import Tensor, nn

from ..errors import PluginError
from ..fairseq_compat.held_in_half import widened

#: What to do where a learned table ends.
_CURES = {
    "source": "give sentences of at most {limit} tokens",
    "target": "set the length limit (--max-len-a, --max-len-b) to at most {limit}",
}
#: Tables that are known here.
POSITIONS = (LearnedPositionalEmbedding, SinusoidalPositionalEmbedding)


class PositionTable:
    """Vectors of the positions 0, 1, … of a stack's input, whatever the tokens are.

    fairseq numbers positions from ``padding_idx + 1`` and derives them from the
    tokens that are not ``pad``; here they follow from the row's length alone.

    Args:
        embedding: fairseq's ``embed_positions`` of an encoder or a decoder.
        dtype: type of the vectors.
        side: ``source`` or ``target``, for messages.
    """

    def __init__(self, embedding: nn.Module, dtype: torch.dtype, side: str = "target") -> None:
        self._dtype, self._side = dtype, side
        self._sinusoidal: Optional[SinusoidalPositionalEmbedding] = None
        if isinstance(embedding, LearnedPositionalEmbedding):
            weights, padding = embedding.weight, embedding.padding_idx
        else:
            assert isinstance(embedding, SinusoidalPositionalEmbedding)
            weights, padding = embedding.weights, embedding.padding_idx
            self._sinusoidal = embedding
        self._first = 0 if padding is None else padding + 1
        self._table = widened(weights).detach()[self._first :].to(dtype)
        self._numbers = torch.arange(self._table.size(0), device=weights.device)

    def holds(self, length: int) -> bool:
        """Whether a row of ``length`` tokens needs no position behind a learned table."""
        return self._sinusoidal is not None or length <= self._table.size(0)

    def vectors(self, starts: Tensor, longest: int, new: int) -> Tensor:
        """Vectors of ``new`` positions a row, counted from ``starts``.

        Past the end of a learned table, the last position is repeated: ragged rows
        and drafts reach over the length limit, where they are cut anyway.

        Args:
            starts: (rows,) long.
            longest: upper bound of ``starts``; exact if there is one row.
            new: positions a row.

        Returns:
            (rows, new, dim), or (1, new, dim) for one row.

        Raises:
            PluginError: not even the first of the new positions fits a learned table, or
                the new positions alone are more than it has.
        """
        self.reach(longest, new)
        end = longest + new
        if starts.size(0) == 1 and end <= self._table.size(0):
            return self._table[longest:end].unsqueeze(0)
        return self.within(starts, new)

    def within(self, starts: Tensor, new: int) -> Tensor:
        """:meth:`vectors` of what the table has, without a look at any number.

        Args:
            starts: (rows,) long.
            new: positions a row.

        Returns:
            (rows, new, dim).
        """
        wanted = starts.unsqueeze(1) + self._numbers[:new]
        return F.embedding(wanted.clamp_(max=self._table.size(0) - 1), self._table)

    def reach(self, longest: int, new: int) -> Tensor:
        """All vectors, (positions, dim), at least so many as :meth:`vectors` would need.

        Args:
            longest: upper bound of the starts.
            new: positions a row.

        Raises:
            PluginError: as for :meth:`vectors`.
        """
        end = longest + new
        if end > self._table.size(0) and self._sinusoidal is not None:
            self._extend(self._sinusoidal, end)
        limit = self._table.size(0)
        if longest >= limit or new > limit:
            raise PluginError(
                f"The model has learned {limit} {self._side} positions, and position {end} was "
                f"asked for: {_CURES[self._side].format(limit=limit)}."
            )
        return self._table

    def _extend(self, embedding: SinusoidalPositionalEmbedding, end: int) -> None:
        size = max(end, 2 * self._table.size(0)) + self._first
        weights = embedding.get_embedding(size, embedding.embedding_dim, embedding.padding_idx)
        self._table = weights[self._first :].to(self._table)
        self._numbers = torch.arange(self._table.size(0), device=self._table.device)
