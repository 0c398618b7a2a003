"""N-gram lookup as a native step."""

import ctypes
from typing import Any, Optional

import torch
from torch import Tensor

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.state import Draft, Outcome, Rows
from ...engine import native
from ...engine.native import pointer
from ...engine.native.interface import Header, field, structure
from ...engine.threads import kernel_threads
from .ngram_lookup import Record, Window

Header(__file__, "ngram_lookup.h", "NgramLookup ngram_lookup()")


@structure
class NgramLookupCall(ctypes.Structure):
    """A draft of a Jacobi solver, and what is learned from the last one."""

    rows = field("RowsCall")
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
    iterates = field("int64_t*", "(count, positions) the argmax of positions, or initial guesses")
    positions = field("int")
    argmax = field("const int64_t*", "(count, argmax_width) of the last iteration, then -1")
    argmax_width = field("int")
    known = field("int64_t*", "(count) positions with an argmax; later ones are initial guesses")
    judged = field("int64_t*", "(count) lengths when the last draft was made")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    origins = field("int64_t*", "(count, block) result: of the tokens")
    draft_lengths = field("int64_t*", "(count) result")


def learn(record: Record, lines: Tensor, lengths: Tensor) -> None:
    """Let a pool learn from whole sentences; see :meth:`.ngram_lookup.Record.learn_all`.

    Args:
        record: has a pool.
        lines: (sentences, 1 + longest) on the CPU: the first symbol, and the chosen ones.
        lengths: (sentences,) on the CPU: how many are chosen.
    """
    call = NgramLookupCall()
    _describe_pool(record, call)
    rows = call.rows
    rows.count, rows.capacity = lines.shape
    rows.tokens, rows.lengths = lines.data_ptr(), lengths.data_ptr()
    native.library().ngram_lookup_learn(ctypes.byref(call))


def _describe_pool(record: Record, call: NgramLookupCall) -> None:
    if record.pool is not None:
        call.pool, call.entries = record.pool.ctypes.data, record.pool.shape[1]


class NativeNgramLookup:
    """What :class:`.ngram_lookup.NgramLookup` does, as native steps; its arguments."""

    def __init__(
        self,
        window: Window,
        record: Record,
        eos: int,
        source: Optional[Tensor],
        initial: Tensor,
    ) -> None:
        rows = initial.size(0)
        self._library = native.library()
        self._scratch = native.own(self, "ngram_lookup")
        self._record, self._source, self._iterates = record, source, initial
        self._known = torch.zeros(rows, dtype=torch.long)
        self._judged = torch.zeros(rows, dtype=torch.long)
        self._origins = torch.empty(0, dtype=torch.long)
        self._buffer = DraftBuffer(window.block)
        call = NgramLookupCall(
            block=window.block, window=window.size, confidence=window.floor, eos=eos
        )
        call.tries, call.hits = record.tries.ctypes.data, record.hits.ctypes.data
        _describe_pool(record, call)
        self._call, self._described = call, (initial, initial)  # tensors of no rows
        self._fit(rows)

    def _fit(self, rows: int) -> None:
        """Point the call to tensors for ``rows`` rows."""
        call, block = self._call, self._call.block
        self._buffer.fit(rows, call)
        if self._origins.size(0) != rows:
            self._origins = torch.empty(rows, block, dtype=torch.long)
        call.judged, call.origins = self._judged.data_ptr(), self._origins.data_ptr()
        call.known, call.source = self._known.data_ptr(), pointer(self._source)
        call.source_length = 0 if self._source is None else self._source.size(1)
        call.iterates, call.positions = self._iterates.data_ptr(), self._iterates.size(1)

    def draft(self, rows: Rows, until: int, most: Optional[Tensor] = None) -> Draft:
        """A draft, which the next one overwrites; see :meth:`.ngram_lookup.NgramLookup.draft`."""
        self._describe(rows)
        self._call.until = until
        self._library.ngram_lookup_draft(self._scratch, ctypes.byref(self._call))
        draft = self._buffer.draft
        if most is not None:  # What is cut off here is not judged.
            torch.minimum(draft.lengths, most, out=draft.lengths)
        return draft

    def iterate(
        self, rows: Rows, until: int, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """Draft, verify and accept several times; see :meth:`.Drafter.iterate`."""

        def run(*arguments: Any) -> None:
            self._describe(rows)
            own = [self._scratch, ctypes.byref(self._call)]
            self._library.ngram_lookup_iterate(*own, *arguments, kernel_threads())

        self._call.until = until
        return verification.repeat(rows, self._buffer.draft, most, run)

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        assert outcome.argmax is not None
        argmax = outcome.argmax.contiguous()
        self._describe(rows)
        self._call.argmax, self._call.argmax_width = argmax.data_ptr(), argmax.size(1)
        self._library.ngram_lookup_accept(self._scratch, ctypes.byref(self._call))

    def _describe(self, rows: Rows) -> None:
        """Point the call to the rows, unless they are where they were last."""
        tokens, lengths = self._described
        if rows.inputs is not tokens or rows.lengths is not lengths:
            describe_rows(rows, self._call.rows)
            self._described = rows.inputs, rows.lengths

    def select(self, rows: Tensor) -> None:
        self._known, self._judged = self._known[rows], self._judged[rows]
        self._iterates = self._iterates[rows]
        if self._source is not None:
            self._source = self._source[rows]
        self._fit(len(rows))
