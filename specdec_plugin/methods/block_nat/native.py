"""A draft of the block-NAT model as a native step."""

import ctypes

import torch

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import CachedDecoder, DecoderState, native
from ...engine.native.interface import Header, field, structure
from .chain import Chain

Header(
    __file__,
    "block_draft.h",
    [
        "void block_draft_run(BlockDraft* block_draft, Stack* stack, Chain* chain, "
        "const BlockDraftCall* call, int threads)"
    ],
    ["BlockDraft block_draft()"],
)


@structure
class BlockDraftCall(ctypes.Structure):
    """A draft of the block-NAT model."""

    rows = field("Rows")
    stack = field("StackCall", "of the drafter's decoder: positions, cache and source")
    block = field("int", "tokens of a draft")
    suppressed_id = field("int", "a symbol that is not drafted")
    confidence = field("float", "see ChainCall")
    fed = field("int64_t*", "(count) tokens in the cache; afterwards all that are chosen")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(count) result")


class NativeBlockDraft:
    """Draft a block with a causal prefix and a chain head.

    Args:
        engine: the drafter's decoder, which takes tokens.
        chain: one that the kernels run.
        block_size: k.
        confidence: see :class:`.drafter.NATDrafter`.
    """

    def __init__(
        self, engine: CachedDecoder, chain: Chain, block_size: int, confidence: float
    ) -> None:
        self._engine, self._chain = engine, chain
        self._library = native.library()
        self._scratch = native.own(self, "block_draft")
        self._call = BlockDraftCall(block=block_size, confidence=confidence)
        self._buffer = DraftBuffer(block_size)

    def propose(self, rows: Rows, state: DecoderState, new: int) -> Draft:
        """Draft; the next draft overwrites this one. All tokens of ``rows`` are fed afterwards.

        Args:
            rows: the rows.
            state: the drafter's; its lengths are changed in place.
            new: the greatest number of tokens that a row has not been fed yet.
        """
        call = self._call
        self._buffer.fit(rows.size, call)
        self._engine.describe(state, new + call.block, call.stack)
        describe_rows(rows, call.rows)
        call.suppressed_id = rows.constraints.pad
        call.fed = state.lengths.data_ptr()
        self._library.block_draft_run(
            self._scratch,
            self._engine.stack,
            self._chain.native,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft
