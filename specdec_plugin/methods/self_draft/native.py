"""A self-draft as a native step."""

import ctypes

import torch

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import CachedDecoder, DecoderState, native
from ...engine.native.interface import Header, field, structure

Header(
    __file__,
    "self_draft.h",
    [
        "void self_draft_run(SelfDraft* self_draft, Stack* stack, const Linear* projection, "
        "const SelfDraftCall* call, int threads)"
    ],
    ["SelfDraft self_draft()"],
)


@structure
class SelfDraftCall(ctypes.Structure):
    """A draft of the verifier with rounded weights."""

    rows = field("Rows")
    stack = field("StackCall", "of the verifier's decoder: positions, cache and source")
    block = field("int", "the most tokens of a draft")
    suppressed_id = field("int", "a symbol that is not drafted")
    eos = field("int64_t", "ends a draft")
    min_len = field("int64_t", "tokens before which no end may come")
    max_len = field("int64_t", "tokens after which an end must come")
    shortlist = field("Shortlist*", "scores the symbols that are likely; null: all are scored")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(count) result")


class NativeSelfDraft:
    """Draft token by token with rounded weights, in the verifier's own cache.

    Args:
        copy: the verifier's decoder with rounded weights, which takes tokens. The kernels run its
            projection, in full or by clusters.
        block_size: k, the most tokens of a draft.
    """

    def __init__(self, copy: CachedDecoder, block_size: int) -> None:
        self._copy = copy
        self._library = native.library()
        self._scratch = native.own(self, "self_draft")
        self._call = SelfDraftCall(block=block_size)
        self._buffer = DraftBuffer(block_size)

    def propose(self, rows: Rows, state: DecoderState) -> Draft:
        """Up to k tokens a row, an end of sentence the last; the next draft overwrites it.

        Args:
            rows: the rows.
            state: the verifier's, where all tokens of ``rows`` but the newest are cached.
        """
        call, constraints, projection = self._call, rows.constraints, self._copy.projection
        call.shortlist = projection.shortlist
        self._buffer.fit(rows.size, call)
        self._copy.describe(state, call.block, call.stack)
        describe_rows(rows, call.rows)
        call.suppressed_id, call.eos = constraints.pad, constraints.eos
        call.min_len, call.max_len = constraints.min_len, constraints.max_len
        self._library.self_draft_run(
            self._scratch,
            self._copy.stack,
            None if projection.native is None else projection.native.handle,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft
