"""A self-draft in one call of the native kernels."""

import ctypes
import weakref

import torch

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import CachedDecoder, DecoderState, native


class NativeSelfDraft:
    """Draft token by token with a copy of the verifier, in the verifier's own cache.

    Args:
        copy: the verifier's decoder with other weights, which takes tokens; its projection is
            the kernels', in full or by clusters.
        block_size: k, the most tokens of a draft.
    """

    def __init__(self, copy: CachedDecoder, block_size: int) -> None:
        self._copy = copy
        self._library = native.library()
        self._scratch: int = self._library.speaker_new()
        weakref.finalize(self, self._library.speaker_free, self._scratch)
        self._monologue = native.Monologue(block=block_size)
        self._buffer = DraftBuffer(block_size)

    def propose(self, rows: Rows, state: DecoderState) -> Draft:
        """Up to k tokens a row, an end of sentence the last; the next draft overwrites it.

        Args:
            rows: the rows.
            state: the verifier's, where all tokens of ``rows`` but the newest are cached.
        """
        call, constraints, projection = self._monologue, rows.constraints, self._copy.projection
        call.shortlist = projection.shortlist
        self._buffer.fit(rows.size, call)
        self._copy.describe(state, call.block, call.call)
        describe_rows(rows, call.rows)
        call.never, call.eos = constraints.pad, constraints.eos
        call.min_len, call.max_len = constraints.min_len, constraints.max_len
        self._library.speaker_run(
            self._scratch,
            self._copy.stack,
            None if projection.native is None else projection.native.handle,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft
