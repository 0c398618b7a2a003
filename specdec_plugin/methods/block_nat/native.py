"""A block of the trained drafter in one call of the native kernels."""

import ctypes
import weakref

import torch

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import CachedDecoder, DecoderState, native
from .chain import Chain


class NativeBlockDraft:
    """Draft a block with a causal prefix and a chain head.

    Args:
        engine: the drafter's decoder, which takes tokens.
        chain: run by the kernels.
        block_size: k.
        confidence: see :class:`.drafters.nat.NATDrafter`.
    """

    def __init__(
        self, engine: CachedDecoder, chain: Chain, block_size: int, confidence: float
    ) -> None:
        self._engine, self._chain = engine, chain
        self._library = native.library()
        self._scratch: int = self._library.proposer_new()
        weakref.finalize(self, self._library.proposer_free, self._scratch)
        self._proposal = native.Proposal(block=block_size, floor=confidence)
        self._buffer = DraftBuffer(block_size)

    def propose(self, rows: Rows, state: DecoderState, new: int) -> Draft:
        """The draft, which the next one overwrites; all tokens of ``rows`` are fed afterwards.

        Args:
            rows: the rows.
            state: the drafter's; its lengths are changed in place.
            new: the greatest number of tokens that a row has not been fed yet.
        """
        call = self._proposal
        self._buffer.fit(rows.size, call)
        self._engine.describe(state, new + call.block, call.call)
        describe_rows(rows, call.rows)
        call.never = rows.constraints.pad
        call.fed = state.lengths.data_ptr()
        self._library.proposer_run(
            self._scratch,
            self._engine.stack,
            self._chain.native,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft
