"""Proposal heads in one call of the native kernels."""

import ctypes

import torch

from ...decoding.native_rows import DraftBuffer
from ...decoding.state import Draft, Rows
from ...engine import DecoderState, native
from .proposals import Proposals


class NativeProposalHeads:
    """Read a draft off the verifier's last states with proposal heads.

    Args:
        proposals: run by the kernels.
        eos: ends a draft.
        confidence: see :class:`.drafters.blockwise.BlockwiseDrafter`.
        least: likewise.
    """

    def __init__(self, proposals: Proposals, eos: int, confidence: float, least: int) -> None:
        self._proposals = proposals
        self._library = native.library()
        block = len(proposals.numbers)
        self._foresight = native.Foresight(block=block, floor=confidence, least=least, eos=eos)
        self._buffer = DraftBuffer(block)

    def propose(self, rows: Rows, state: DecoderState) -> Draft:
        """Up to k - 1 tokens a row, an end of sentence the last; the next draft overwrites it.

        Args:
            rows: the rows, with the verifier's last states.
            state: the verifier's.
        """
        call = self._foresight
        assert rows.states is not None
        self._buffer.fit(rows.size, call)
        call.rows, call.never = rows.size, rows.constraints.pad
        call.states = rows.states.data_ptr()
        self._proposals.describe_source(state, call)
        self._library.heads_run(
            self._proposals.native,
            self._proposals.projection,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft
