"""N-gram lookup in one call of the native kernels."""

import ctypes
from typing import Optional

import torch
from torch import Tensor

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import native
from ...engine.native import pointer
from ...engine.native.interface import Header, field, structure
from .ngram_lookup import Record, Window

Header(
    __file__,
    "ngram_lookup.h",
    [
        "void ngram_lookup_draft(NgramLookup* lookup, const NgramLookupCall* call)",
        "void ngram_lookup_learn(NgramLookup* lookup, const NgramLookupCall* call)",
    ],
    ["NgramLookup ngram_lookup()"],
)


@structure
class NgramLookupCall(ctypes.Structure):
    """A draft of a Jacobi solver, and what is learned from the last one."""

    rows = field("Rows", "with a table of argmax")
    block = field("int", "the most tokens of a draft")
    window = field("int", "drafts end where a window of so many positions ends; 0: no windows")
    confidence = field("double", "drafts end before they are all right with less probability")
    until = field("int64_t", "positions from here on are not drafted")
    eos = field("int64_t", "ends a draft")
    source = field("const int64_t*", "(count, source_length) -1: no symbol of the output; or null")
    source_length = field("int")
    pool = field("int64_t*", "(ORDERS, entries) what followed n-grams, or -1; or null")
    entries = field("int64_t")
    tries = field("double*", "(ORIGINS) how often a token of each origin was judged")
    hits = field("double*", "(ORIGINS) how often it was right")
    known = field("int64_t*", "(count) positions with an argmax; later ones are initial guesses")
    judged = field("int64_t*", "(count) lengths when the last draft was made")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    origins = field("int64_t*", "(count, block) result: of the tokens")
    draft_lengths = field("int64_t*", "(count) result")


class NativeNgramLookup:
    """What :class:`.guesses.NgramLookup` does, a call of the kernels each; its arguments."""

    def __init__(
        self, window: Window, record: Record, eos: int, source: Optional[Tensor], rows: int
    ) -> None:
        self._library = native.library()
        self._scratch = native.own(self, "ngram_lookup")
        self._record, self._source = record, source
        self._known = torch.zeros(rows, dtype=torch.long)
        self._judged = torch.zeros(rows, dtype=torch.long)
        self._origins = torch.empty(0, dtype=torch.long)
        self._buffer = DraftBuffer(window.block)
        call = NgramLookupCall(
            block=window.block, window=window.size, confidence=window.floor, eos=eos
        )
        call.tries, call.hits = record.tries.data_ptr(), record.hits.data_ptr()
        call.pool = pointer(record.pool)
        call.entries = 0 if record.pool is None else record.pool.size(1)
        self._call = call
        self._fit(rows)

    def _fit(self, rows: int) -> None:
        """Room for what is noted of so many rows."""
        call, block = self._call, self._call.block
        self._buffer.fit(rows, call)
        if self._origins.size(0) != rows:
            self._origins = torch.empty(rows, block, dtype=torch.long)
        call.judged, call.origins = self._judged.data_ptr(), self._origins.data_ptr()
        call.known, call.source = self._known.data_ptr(), pointer(self._source)
        call.source_length = 0 if self._source is None else self._source.size(1)

    def guess(self, rows: Rows, until: int) -> Draft:
        """A draft, which the next one overwrites; see :meth:`.guesses.NgramLookup.guess`."""
        describe_rows(rows, self._call.rows)
        self._call.until = until
        self._library.ngram_lookup_draft(self._scratch, ctypes.byref(self._call))
        return self._buffer.draft

    def learn(self, rows: Rows) -> None:
        """See :meth:`.guesses.NgramLookup.learn`."""
        describe_rows(rows, self._call.rows)
        self._library.ngram_lookup_learn(self._scratch, ctypes.byref(self._call))

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._known, self._judged = self._known[rows], self._judged[rows]
        if self._source is not None:
            self._source = self._source[rows]
        self._fit(len(rows))
