"""The kernel of a self-draft, and what it takes."""

import ctypes

from ...engine.native.interface import Header, field, structure

Header(__file__, "self_draft.h", "SelfDraft self_draft()")


@structure
class SelfDraftCall(ctypes.Structure):
    """A draft of the verifier with rounded weights."""

    rows = field("RowsCall")
    stack = field("StackCall", "of the verifier's decoder: positions, cache and source")
    block = field("int", "the most tokens of a draft")
    suppressed_id = field("int", "a symbol that is not drafted")
    eos = field("int64_t", "ends a draft")
    min_len = field("int64_t", "tokens before which no end may come")
    max_len = field("int64_t", "tokens after which an end must come")
    shortlist = field("Shortlist*", "scores the symbols that are likely; null: all are scored")
    low_rank = field("LowRankCall", "or no down; not used where symbols are drawn")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(count) result")
