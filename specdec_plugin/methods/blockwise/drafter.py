"""Blockwise parallel decoding (Stern et al., 2018): the model drafts for itself.

Proposal heads predict the tokens behind the next one, from the state that predicted the next one.
Verification of the draft before computed that state. So one pass of the model verifies a draft and
allows the next one (section 4), and the heads read that one position alone.
"""

import ctypes
from typing import Any, List, Optional

import torch
from torch import Tensor

from ...decoding.drafter import Drafter, confident
from ...decoding.native_rows import DraftBuffer, describe_sampling
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.operations import Work, decoder_of
from ...decoding.state import Batch, Draft, Outcome, Rows
from ...decoding.statistics import Statistics
from ...decoding.verifier import Verifier
from ...engine import native
from ...engine.threads import kernel_threads
from .native import HEADS_AT_ONCE, HeadsCall
from .proposals import Proposals


class BlockwiseDrafter(Drafter):
    """Drafts what heads 2 to k predict; in the first iteration they have no state to read.

    Args:
        proposals: the heads.
        verifier: whose states they read.
        eos: ends a draft.
        confidence: a draft stops where the heads' probability that all of it is right
            would fall below this; 0 drafts k - 1 tokens, or up to an end of sentence.
        min_draft: tokens that are drafted however unlikely they are.
        statistics: where it is counted how often heads were asked.
    """

    needs = frozenset(["hidden"])

    def __init__(
        self,
        proposals: Proposals,
        verifier: Verifier,
        eos: int,
        confidence: float = 0.0,
        min_draft: int = 0,
        statistics: Optional[Statistics] = None,
    ) -> None:
        self.proposals, self._verifier = proposals, verifier
        self.statistics = Statistics() if statistics is None else statistics
        self._eos, self._confidence, self._min_draft = eos, confidence, min_draft
        self._hidden: Optional[Tensor] = None
        block = len(proposals.numbers)
        self._call = HeadsCall(block=block, confidence=confidence, min_draft=min_draft, eos=eos)
        self._buffer = DraftBuffer(block)

    @property
    def stops_early(self) -> bool:
        """Whether heads behind the end of a draft need not be asked."""
        return self.proposals.native is not None

    def cost(self, work: Work, alone: bool = True) -> float:
        """The heads of each block, and the projection behind each head that ran."""
        heads, count = self.proposals.heads, len(self.proposals.numbers)
        blocks = work.statistics.drafter_blocks
        joint = 2.0 * heads.inner.in_features * heads.inner.out_features
        each = 2.0 * heads.dim * heads.outer.in_features
        each += decoder_of(work.models[0].decoder).projection
        if not heads.joint:
            reading = heads.source_dim * (heads.dim + 2 * work.source)  # queries, attention
            joint, each = 0.0, each + 2.0 * (heads.inner.in_features * heads.hidden + reading)
        ran = work.computed(count, HEADS_AT_ONCE) if self.stops_early else count * blocks
        return joint * blocks + each * ran

    def start(self, batch: Batch) -> None:
        """Take over weights that changed."""
        self._hidden = None
        self.proposals.refresh()

    def propose(self, rows: Rows) -> Draft:
        """Up to k - 1 tokens a row, an end of sentence the last."""
        if self._hidden is None:
            return rows.empty_draft()
        self.statistics.drafter_blocks += rows.size
        if self.proposals.native is None:
            return self._propose(self._hidden, rows)
        native.library().heads_run(*self._describe(rows, self._hidden), kernel_threads())
        return self._buffer.draft

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """See :meth:`.Drafter.iterate`."""
        hidden = self._hidden
        if hidden is None or self.proposals.native is None:
            return None

        def run(*arguments: Any) -> None:
            own = self._describe(rows, hidden)
            native.library().heads_iterate(*own, *arguments, kernel_threads())

        self._buffer.fit(rows.size, self._call)
        found = verification.repeat(rows, self._buffer.draft, most, run)
        if found is not None:
            self._hidden = found.outcome.hidden
            self.statistics.drafter_blocks += found.iterations * rows.size
        return found

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        """Keep the states that the heads read."""
        self._hidden = outcome.hidden

    def select(self, rows: Tensor) -> None:
        if self._hidden is not None:
            self._hidden = self._hidden[rows]

    def _describe(self, rows: Rows, hidden: Tensor) -> List[Any]:
        """The arguments of the kernels that draft from (rows, dim) states."""
        call, proposals = self._call, self.proposals
        self._buffer.fit(rows.size, call)
        call.rows, call.suppressed_id = rows.size, rows.constraints.pad
        call.hidden = hidden.data_ptr()
        describe_sampling(rows, call.sampling)
        proposals.describe_source(self._verifier.states[0], call)
        return [proposals.native, proposals.projection, ctypes.byref(call)]

    def _propose(self, states: Tensor, rows: Rows) -> Draft:
        state, suppressed_id = self._verifier.states[0], rows.constraints.pad
        scores = self.proposals.scores(states, suppressed_id, state, rows.temperature)
        tokens = rows.best(scores)
        lengths = confident(scores.of(tokens), self._confidence)
        lengths = lengths.clamp(min=min(self._min_draft, tokens.size(1)))
        ends = tokens.eq(self._eos)
        to_end = torch.where(ends.any(1), ends.int().argmax(1) + 1, tokens.size(1))
        lengths = torch.minimum(lengths, to_end)
        if tokens.device.type == "cpu":  # elsewhere the host would have to wait for the lengths
            tokens = tokens[:, : int(lengths.max())]
        return Draft(tokens, lengths)
