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
from ...engine import CachedDecoder, native
from ...engine.native import INT4, WEIGHT_TYPES
from ...engine.threads import kernel_threads
from ...errors import PluginError
from ...vocab.clustered_projection import projection_by
from ...vocab.clusters import Clusters
from ...vocab.low_rank import FittedLowRank
from .native import SelfDraftCall

#: The type of the copy's weights where none is given. Of 16 tokens that the shipped model drafts,
#: all are accepted in 76 % of drafts, and in 97 % with 8 bits. But 4 bits are half of the bytes to
#: read, which saves more.
DTYPE = INT4
#: k where none is given: for exact acceptance with 4 bits, and with others, which change fewer
#: tokens; and for other rules of acceptance.
BLOCK_SIZE, LONG_BLOCK_SIZE, RELAXED_BLOCK_SIZE = 16, 32, 64
#: What pays where rounding changes more tokens.
SHORT = 8
#: Steps of beam search that are drafted at once: each has a token for every beam.
BEAM_BLOCK_SIZE = 4
_NO_KERNELS = (
    "Without --drafter-path, --decoding specdec drafts with a rounded copy of the model itself, "
    "which only the native kernels can run (on a CPU, with a C++ compiler, for a plain "
    "Transformer)."
)


class CannotDraftError(PluginError):
    """The kernels cannot run a rounded copy of the model here.

    Args:
        cause: a sentence.
        cure: another one.

    Attributes:
        cause: as given.
    """

    def __init__(
        self,
        cause: str,
        cure: str = "Add --drafter-path DRAFTER.pt, or use --decoding greedy.",
    ) -> None:
        super().__init__(f"{cause} {cure}")
        self.cause = cause


class SelfDrafter(Drafter):
    """Greedy decoding by a copy of the verifier's decoder, token by token.

    At batch 1 a step costs what it takes to read the weights. With 4 bits they are an
    eighth of float32. The copy's choices are nearly always the verifier's.
    It reads the verifier's cache and projected source, so that nothing of the source or of
    the accepted tokens is computed twice.

    Args:
        verifier: whose first model is copied.
        block_size: k, the most tokens of a draft.
        dtype: the type of the copy's weights; those of a projection by clusters have 8 bits.
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
        block_size: int = BLOCK_SIZE,
        dtype: torch.dtype = DTYPE,
        clusters: Optional[Clusters] = None,
        lengths: Sequence[int] = (),
        low_rank: bool = False,
    ) -> None:
        if dtype not in WEIGHT_TYPES:
            raise PluginError(
                f"--drafter-dtype {str(dtype).removeprefix('torch.')}: without --drafter-path, "
                "give float32, bfloat16, int8 or int4, or leave it out."
            )
        engine = verifier.engines[0]
        if not isinstance(engine, CachedDecoder):
            raise CannotDraftError(_NO_KERNELS)
        copy = CachedDecoder(
            engine.decoder, dtype, project=projection_by(clusters), backend=engine.backend
        )
        self._verifier, self._engine, self.copy = verifier, engine, copy
        self.dtype = dtype
        self._check()
        self._library = native.library()
        self._scratch = native.own(self, "self_draft")
        self._call = SelfDraftCall()
        self._low_rank: Optional[FittedLowRank] = None
        if low_rank and clusters is None:
            self._low_rank = FittedLowRank(engine.projection)
        self.lengths, self.length = (*lengths, block_size), block_size
        self._buffers = {each: DraftBuffer(each) for each in self.lengths}

    def start(self, batch: Batch) -> None:
        """Round the weights again if the verifier saw that they changed."""
        if self.copy.version != self.copy.weights.version:
            self.copy.repack()
            self._check()

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

    def _check(self) -> None:
        """:class:`CannotDraftError` where the copy cannot draft into the verifier's cache."""
        projection = self.copy.projection
        scored = projection.native is not None or projection.shortlist is not None
        if self.copy.on_torch is not None or not scored:
            raise CannotDraftError(_NO_KERNELS)
        if self._engine.on_torch is not None:
            own = str(self._engine.dtype).removeprefix("torch.")
            raise CannotDraftError(
                "Without --drafter-path, --decoding specdec drafts into the cache of the model, "
                f"which cannot be shared in {own}: leave out --fp16 and --verifier-dtype {own} "
                "(bfloat16 can be shared).",
                "Or add --drafter-path DRAFTER.pt, or use --decoding greedy.",
            )

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
