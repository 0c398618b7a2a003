"""Drafts of the verifier itself, with its weights quantised: nothing has to be trained."""

import ctypes
from typing import Any, List, Optional, Sequence

import torch

from ...decoding.drafter import Drafter
from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.operations import Work
from ...decoding.state import Batch, Draft, Rows
from ...decoding.verifier import Verifier
from ...engine import native
from ...engine.native import INT4
from ...engine.threads import kernel_threads
from ...vocab.clusters import Clusters
from ...vocab.low_rank import FittedLowRank
from .native import SelfDraftCall
from .rounded_copy import check_shares, rounded_copy

#: The type of the copy's weights where none is given. More tokens are refused than with 8 bits, but
#: 4 bits are half of the bytes to read, which saves more (in docs/results/large-model,
#: 2026-12-01-four-bit-drafts.json and 2026-12-01-eight-bit-drafts.json).
DTYPE = INT4
#: k where none is given, for exact acceptance: of 4 bits, and of other types; and for other rules.
INT4_BLOCK_SIZE, BLOCK_SIZE, RELAXED_BLOCK_SIZE = 16, 32, 64
#: What pays where rounding changes more tokens.
SHORT = 8
#: Steps of beam search that are drafted at once: each has a token for every beam.
BEAM_BLOCK_SIZE = 4


def longest_draft(dtype: torch.dtype) -> int:
    """k where none is given, for exact acceptance: with 4 bits more tokens are refused."""
    return INT4_BLOCK_SIZE if dtype == INT4 else BLOCK_SIZE


class SelfDrafter(Drafter):
    """Greedy decoding by a copy of the verifier's decoder, token by token.

    At batch 1 a step costs what it takes to read the weights. With 4 bits they are an
    eighth of float32. Most of the copy's choices are the verifier's.
    It reads the verifier's cache and projected source, so that nothing of the source or of
    the accepted tokens is computed twice.

    Args:
        verifier: whose first model is copied.
        block_size: k, the most tokens of a draft; None: :func:`longest_draft`.
        dtype: the type of the copy's weights; see :func:`.rounded_copy`.
        clusters: of the verifier's states, for the copy's projection; None for a full one.
        lengths: shorter drafts that the loop may choose, rising.
        low_rank: once there are enough states, find the best symbols by a product of low rank.
            Drafts depend on earlier sentences then. Not used with clusters.

    Attributes:
        dtype: as given.
        copy: the decoder that drafts.

    Raises:
        CannotDraftError: the kernels cannot run the verifier's decoder here.
        PluginError: they have no such type.
    """

    def __init__(
        self,
        verifier: Verifier,
        block_size: Optional[int] = None,
        dtype: torch.dtype = DTYPE,
        clusters: Optional[Clusters] = None,
        lengths: Sequence[int] = (),
        low_rank: bool = False,
    ) -> None:
        self.copy = rounded_copy(verifier, dtype, clusters)
        self._verifier, self._engine = verifier, verifier.decoder
        self.dtype = dtype
        self._library = native.library()
        self._scratch = native.own(self, "self_draft")
        self._call = SelfDraftCall()
        self._low_rank: Optional[FittedLowRank] = None
        if low_rank and clusters is None:
            self._low_rank = FittedLowRank(self._engine.projection)
        self.length = block_size or longest_draft(dtype)
        self.lengths = (*lengths, self.length)
        self._buffers = {each: DraftBuffer(each) for each in self.lengths}

    def start(self, batch: Batch) -> None:
        """Round the weights again if the verifier saw that they changed."""
        if self.copy.version != self.copy.weights.version:
            self.copy.repack()
            check_shares(self.copy, self._engine)

    def refresh(self) -> None:
        """Find factors of low rank once there are enough states."""
        if self._low_rank is not None:
            self._low_rank.refresh()
            self._use(self._low_rank)

    def forget(self) -> None:
        """Forget the states of earlier batches."""
        if self._low_rank is not None:
            self._low_rank.forget()
            self._use(self._low_rank)

    def _use(self, low_rank: FittedLowRank) -> None:
        """Let the kernels take these factors, or record states for them."""
        self._verifier.sample = low_rank.sample
        self._call.low_rank = low_rank.describe()

    def cost(self, work: Work, alone: bool = True) -> float:
        """What the verifier's decoder costs for the drafted tokens, by its present projection."""
        found = self._low_rank and self._low_rank.found
        return work.decoding(work.drafted, found.operations if found else None)

    def propose(self, rows: Rows) -> Draft:
        """What the rounded decoder predicts, up to k tokens a row; the next draft overwrites it."""
        self._library.self_draft_run(*self._describe(rows), kernel_threads())
        return self._buffers[self.length].draft

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """See :meth:`.Drafter.iterate`."""

        def run(*arguments: Any) -> None:
            own = self._describe(rows)
            self._library.self_draft_iterate(*own, *arguments, kernel_threads())

        buffer = self._buffers[self.length]
        buffer.fit(rows.size, self._call)
        return verification.repeat(rows, buffer.draft, most, run)

    def _describe(self, rows: Rows) -> List[Any]:
        """The arguments of the kernels that draft for these rows."""
        call, constraints = self._call, rows.constraints
        call.shortlist, call.block = self.copy.projection.shortlist, self.length
        self._buffers[self.length].fit(rows.size, call)
        fed = rows.within_limit(call.block)
        self.copy.describe(self._verifier.states[0], fed, call.stack)
        describe_rows(rows, call.rows)
        call.suppressed_id, call.eos = constraints.pad, constraints.eos
        call.min_len, call.max_len = constraints.min_len, constraints.max_len
        return [self._scratch, *self.copy.handles, ctypes.byref(call)]
