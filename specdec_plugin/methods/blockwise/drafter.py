"""Blockwise parallel decoding (Stern et al., 2018): the model drafts for itself.

Proposal heads say what follows the next token, from the state that said the next token. That
state comes out of the verification of the draft before, so that verifying a draft and making
the next is one call of the model (section 4); heads are asked at that one place alone.
"""

from typing import Optional

import torch
from torch import Tensor

from ...decoding.drafter import Drafter
from ...decoding.state import Batch, Draft, Outcome, Rows
from ...decoding.statistics import Statistics
from ...decoding.verifier import Verifier
from ..block_nat.chain import confident
from .native import NativeProposalHeads
from .proposals import Proposals


class BlockwiseDrafter(Drafter):
    """Drafts what heads 2 to k say; the first iteration of a row has nothing to read yet.

    Args:
        proposals: the heads.
        verifier: whose states they read.
        eos: ends a draft.
        confidence: a draft stops where the heads' probability that all of it is right
            would fall below this; 0 drafts k - 1 tokens, or up to an end of sentence.
        least: tokens that are drafted however unlikely they are.
        statistics: where it is counted how often heads were asked.
    """

    needs = frozenset(["hidden"])

    def __init__(
        self,
        proposals: Proposals,
        verifier: Verifier,
        eos: int,
        confidence: float = 0.0,
        least: int = 0,
        statistics: Optional[Statistics] = None,
    ) -> None:
        self.proposals, self._verifier = proposals, verifier
        self.statistics = Statistics() if statistics is None else statistics
        self._eos, self._confidence, self._least = eos, confidence, least
        self._hidden: Optional[Tensor] = None
        self._at_once: Optional[NativeProposalHeads] = None
        if proposals.native is not None:
            self._at_once = NativeProposalHeads(proposals, eos, confidence, least)

    @property
    def stops_early(self) -> bool:
        """Whether heads behind the end of a draft need not be asked."""
        return self._at_once is not None and self.proposals.native is not None

    def start(self, batch: Batch) -> None:
        """Take over weights that changed."""
        self._hidden = None
        self.proposals.refresh()

    def propose(self, rows: Rows) -> Draft:
        """Up to k - 1 tokens a row, an end of sentence the last."""
        if self._hidden is None:
            return rows.empty_draft()
        self.statistics.drafter_blocks += rows.size
        if self._at_once is not None and self.proposals.native is not None:
            return self._at_once.propose(rows, self._hidden, self._verifier.states[0])
        return self._propose(self._hidden, rows.constraints.pad)

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        """Keep the states that the heads read."""
        self._hidden = outcome.hidden

    def select(self, rows: Tensor) -> None:
        """Continue with these rows."""
        if self._hidden is not None:
            self._hidden = self._hidden[rows]

    def _propose(self, states: Tensor, never: int) -> Draft:
        scores = self.proposals.scores(states, never, self._verifier.states[0])
        best, tokens = scores.values.max(2)
        lengths = confident(best - scores.normalisers, self._confidence)
        lengths = lengths.clamp(min=min(self._least, tokens.size(1)))
        ends = tokens.eq(self._eos)
        to_end = torch.where(ends.any(1), ends.int().argmax(1) + 1, tokens.size(1))
        lengths = torch.minimum(lengths, to_end)
        if tokens.device.type == "cpu":  # elsewhere the host would have to wait for the lengths
            tokens = tokens[:, : int(lengths.max())]
        return Draft(tokens, lengths)
