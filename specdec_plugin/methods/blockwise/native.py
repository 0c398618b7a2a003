"""The kernels of proposal heads, and what they take."""

import ctypes

from ...engine.native.interface import Header, constants, field, structure

#: Heads that the kernels run at once, for which the projection's weights are read once.
HEADS_AT_ONCE = 4
constants(HEADS_AT_ONCE=HEADS_AT_ONCE)
Header(__file__, "heads.h", "Heads heads(int dim, int joint, int readers)")


@structure
class HeadsCall(ctypes.Structure):
    """A draft of proposal heads."""

    rows = field("int")
    block = field("int", "how many heads may be run, the first ones")
    hidden = field("const float*", "(rows, dim) h")
    source_kv = field(
        "const float*", "(2, total_rows, readers, source_length, head dim) keys and values, or null"
    )
    source_mask = field("const float*", "(total_rows, source_length) added to scores, or null")
    source_length = field("int")
    total_rows = field("int", "rows of the source")
    row_index = field("const int64_t*", "(rows) which of them these rows are; null: the first")
    suppressed_id = field("int", "a symbol that is not drafted, or -1")
    eos = field("int64_t", "ends a draft")
    confidence = field("float", "a draft ends before it is all right with less probability")
    min_draft = field("int", "but not before it has so many tokens")
    sampling = field("Sampling", "what tokens are drawn with")
    draft = field("int64_t*", "(rows, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(rows) result")
