"""What fairseq's greedy search may not choose, as masks over log-probabilities."""

import math
from typing import NamedTuple, Optional, Union

import torch
from torch import Tensor

from ..engine.native.interface import constants

#: The log-probability of a forced token that a clustered projection has left out. It is added to
#: those of what follows, which float32 could not tell apart behind a very small number.
FORCED_SCORE = -20.0

constants(FORCED_SCORE=FORCED_SCORE)


class Constraints(NamedTuple):
    """The rules of one batch.

    Attributes:
        pad: never chosen.
        unk: its log-probability is lowered by ``unk_penalty``.
        eos: not before ``min_len`` tokens; forced after ``max_len``.
        unk_penalty: fairseq's ``--unkpen``.
        min_len: tokens before an end of sentence is allowed.
        max_len: tokens after which the sentence is ended.
        prefix: (rows, width) tokens that every row must begin with, padded on the
            right, or None.
        no_repeat_ngram_size: no n-gram of this size, 2 or more, comes twice in a hypothesis; 0:
            any may.
        source_lengths: (rows,) the length that each output must have, or None.
        phrases: (rows, width) what each output must contain, packed as by fairseq's
            ``pack_constraints``, or None.

    The last three are kept by beam search alone.
    """

    pad: int
    unk: int
    eos: int
    unk_penalty: float
    min_len: int
    max_len: int
    prefix: Optional[Tensor] = None
    no_repeat_ngram_size: int = 0
    source_lengths: Optional[Tensor] = None
    phrases: Optional[Tensor] = None

    def select(self, rows: Union[Tensor, slice]) -> "Constraints":
        """The same rules for some of the rows."""
        kept = {}
        for name in ("prefix", "source_lengths", "phrases"):
            of_rows = getattr(self, name)
            if of_rows is not None:
                here = rows.to(of_rows.device) if isinstance(rows, Tensor) else rows
                kept[name] = of_rows[here]
        return self._replace(**kept) if kept else self

    @property
    def _prefix_width(self) -> int:
        return 0 if self.prefix is None else self.prefix.size(1)

    def bind(self, shortest: int, longest: int, width: int) -> bool:
        """Whether limit, prefix or minimum may apply to ``width`` tokens of some row.

        Args:
            shortest: the least number of tokens that a row has.
            longest: the greatest.
            width: tokens to choose.
        """
        return shortest < max(self.min_len, self._prefix_width) or longest + width > self.max_len

    def apply(
        self,
        lprobs: Tensor,
        starts: Tensor,
        shortest: int,
        longest: int,
        normalisers: Tensor,
    ) -> Tensor:
        """Apply the rules in fairseq's order: unknown, limit, then prefix or minimum.

        ``pad`` is suppressed before, where the scores are computed.

        Args:
            lprobs: (rows, width, vocabulary) log-probabilities, changed in place.
            starts: (rows,) how many tokens each row has; position i chooses token
                ``starts + i``.
            shortest: the least of ``starts``, known to the host: rules that cannot
                apply are not computed.
            longest: the greatest of ``starts``, likewise.
            normalisers: (rows, width) what is subtracted from ``lprobs`` later.

        Returns:
            ``lprobs``.
        """
        if self.unk_penalty != 0:
            lprobs[..., self.unk] -= self.unk_penalty
        width = lprobs.size(1)
        if not self.bind(shortest, longest, width):
            return lprobs

        prefix_width = self._prefix_width
        at_limit = longest + width > self.max_len
        steps = starts.unsqueeze(1) + torch.arange(width, device=starts.device)
        if at_limit:
            ends = torch.full_like(steps, self.eos)
            self._force(lprobs, steps >= self.max_len, ends, normalisers)
        if shortest < prefix_width:
            self._force_prefix(lprobs, steps, normalisers)
        if shortest < self.min_len:
            # fairseq does not apply the minimum length to the columns of the prefix.
            early = (steps < self.min_len) & (steps >= prefix_width)
            lprobs[..., self.eos].masked_fill_(early, -math.inf)
        return lprobs

    def _force_prefix(self, lprobs: Tensor, steps: Tensor, normalisers: Tensor) -> None:
        assert self.prefix is not None
        width = self.prefix.size(1)
        wanted = self.prefix.gather(1, steps.clamp(max=width - 1))
        forced = (steps < width) & (steps < self.max_len) & wanted.ne(self.pad)
        self._force(lprobs, forced, wanted, normalisers)

    @staticmethod
    def _force(lprobs: Tensor, where: Tensor, tokens: Tensor, normalisers: Tensor) -> None:
        """Leave one choice at the positions ``where``; its log-probability stays."""
        index = tokens.unsqueeze(2)
        kept = lprobs.gather(2, index)
        left_out = kept.isneginf() & where.unsqueeze(2)
        kept = torch.where(left_out, normalisers.unsqueeze(2) + FORCED_SCORE, kept)
        lprobs.masked_fill_(where.unsqueeze(2), -math.inf)
        # Elsewhere the scatter writes back the existing score.
        lprobs.scatter_(2, index, kept)
