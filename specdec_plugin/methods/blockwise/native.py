"""Proposal heads as a native step."""

import ctypes

import torch
from torch import Tensor

from ...decoding.native_rows import DraftBuffer
from ...decoding.state import Draft, Rows
from ...engine import DecoderState, native
from ...engine.native.interface import Header, constants, field, structure
from .proposals import Proposals

#: Heads that the kernels run at once, for which the projection's weights are read once.
HEADS_AT_ONCE = 4
constants(HEADS_AT_ONCE=HEADS_AT_ONCE)
Header(
    __file__,
    "heads.h",
    [
        "void heads_query(Heads* heads, Linear* query)",
        "void heads_inner(Heads* heads, Linear* inner)",
        "void heads_outer(Heads* heads, Linear* outer)",
        "void heads_run(Heads* heads, const Linear* projection, const HeadsCall* call, "
        "int threads)",
    ],
    ["Heads heads(int dim, int joint, int readers)"],
)


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
    draft = field("int64_t*", "(rows, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(rows) result")


class NativeProposalHeads:
    """Draft from the verifier's last states with proposal heads.

    Args:
        proposals: heads that the kernels run.
        eos: ends a draft.
        confidence: see :class:`.drafter.BlockwiseDrafter`.
        least: likewise.
    """

    def __init__(self, proposals: Proposals, eos: int, confidence: float, least: int) -> None:
        self._proposals = proposals
        self._library = native.library()
        block = len(proposals.numbers)
        self._call = HeadsCall(block=block, confidence=confidence, min_draft=least, eos=eos)
        self._buffer = DraftBuffer(block)

    def propose(self, rows: Rows, hidden: Tensor, state: DecoderState) -> Draft:
        """Up to k - 1 tokens a row, an end of sentence the last; the next draft overwrites it.

        Args:
            rows: the rows.
            hidden: (rows, dim) the verifier's states that predicted the newest tokens.
            state: the verifier's.
        """
        call = self._call
        self._buffer.fit(rows.size, call)
        call.rows, call.suppressed_id = rows.size, rows.constraints.pad
        call.hidden = hidden.data_ptr()
        self._proposals.describe_source(state, call)
        self._library.heads_run(
            self._proposals.native,
            self._proposals.projection,
            ctypes.byref(call),
            torch.get_num_threads(),
        )
        return self._buffer.draft
