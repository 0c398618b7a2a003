"""The kernels of a block-NAT model's drafts, and what they take."""

import ctypes

from ...engine.native.interface import Header, field, structure

Header(__file__, "block_draft.h", "BlockDraft block_draft()")


@structure
class BlockDraftCall(ctypes.Structure):
    """A draft of the block-NAT model."""

    rows = field("RowsCall")
    stack = field("StackCall", "of the drafter's decoder: positions, cache and source")
    block = field("int", "tokens of a draft")
    suppressed_id = field("int", "a symbol that is not drafted")
    confidence = field("float", "see ChainCall")
    fed = field("int64_t*", "(count) tokens in the cache; afterwards all that are chosen")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(count) result")
