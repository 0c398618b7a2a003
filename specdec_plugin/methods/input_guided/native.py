"""Copies of the source as a native step."""

import ctypes

import torch
from torch import Tensor

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import native
from ...engine.native.interface import Header, field, structure
from .source_copy import NEAR, start_matches

Header(__file__, "source_copy.h")


@structure
class SourceCopyCall(ctypes.Structure):
    """A draft that copies the source."""

    rows = field("Rows")
    block = field("int", "the most tokens of a draft")
    follow_nearest = field("int", "1: of several matches the nearest counts, and none is needed")
    near = field("int", "how far a match of a single symbol may be then")
    eos = field("int64_t", "ends a draft")
    source = field("const int64_t*", "(count, source_length) -1: no symbol of the output")
    source_length = field("int")
    matches = field(
        "int64_t*",
        "(count, source_length + 1) how many symbols before a position of the source are the "
        "output's last",
    )
    matched = field("int64_t*", "(count) tokens that the matches take into account")
    starts = field("int64_t*", "(count) where the last draft began in the source")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(count) result")


@structure
class SourceNextCall(ctypes.Structure):
    """The tokens with which the source goes on."""

    rows = field("Rows")
    block = field("int", "tokens that each row of the draft has room for")
    near = field("int", "how far a match of a single symbol may be")
    source = field("const int64_t*", "(count, source_length) -1: no symbol of the output")
    source_length = field("int")
    matches = field("int64_t*", "(count, source_length + 1) as for a draft")
    matched = field("int64_t*", "(count) tokens that matches and places take into account")
    places = field("int64_t*", "(count) where the source goes on behind the chosen tokens")
    draft = field("const int64_t*", "(count, block)")
    draft_lengths = field("const int64_t*", "(count)")
    next = field("int64_t*", "(count, block + 1) result, -1 where there is none")


class NativeSourceCopy:
    """What :class:`.source_copy.SourceCopy` does, as one native step; its arguments."""

    def __init__(
        self, source: Tensor, starts: Tensor, block_size: int, eos: int, longest: bool
    ) -> None:
        self._library = native.library()
        self._source, self._matches = source.contiguous(), start_matches(source, starts)
        self._matched, self._starts = torch.zeros_like(starts), starts.clone()
        block = min(block_size, source.size(1))
        self._buffer = DraftBuffer(block)
        self._call = SourceCopyCall(block=block, follow_nearest=longest, near=NEAR, eos=eos)
        self._describe()

    def _describe(self) -> None:
        call = self._call
        self._buffer.fit(self._source.size(0), call)
        call.source, call.source_length = self._source.data_ptr(), self._source.size(1)
        call.matches, call.matched = self._matches.data_ptr(), self._matched.data_ptr()
        call.starts = self._starts.data_ptr()

    def draft(self, rows: Rows) -> Draft:
        """What follows in the source, up to its end; the next draft overwrites it."""
        describe_rows(rows, self._call.rows)
        self._library.source_copy_draft(ctypes.byref(self._call))
        return self._buffer.draft

    def select(self, rows: Tensor) -> None:
        self._source, self._matches = self._source[rows], self._matches[rows]
        self._matched, self._starts = self._matched[rows], self._starts[rows]
        self._describe()


class NativeSourceNext:
    """What :class:`.source_copy.SourceNext` does, as one native step; its arguments."""

    def __init__(self, source: Tensor, starts: Tensor) -> None:
        self._library = native.library()
        self._source, self._matches = source.contiguous(), start_matches(source, starts)
        self._matched, self._places = torch.zeros_like(starts), starts.clone()
        self._call = SourceNextCall(near=NEAR)
        self._describe()

    def _describe(self) -> None:
        call = self._call
        call.source, call.source_length = self._source.data_ptr(), self._source.size(1)
        call.matches, call.matched = self._matches.data_ptr(), self._matched.data_ptr()
        call.places = self._places.data_ptr()

    def after(self, rows: Rows, draft: Draft) -> Tensor:
        """(rows, m + 1) the tokens behind the chosen ones and each drafted one; -1: none."""
        tokens, lengths = draft.tokens.contiguous(), draft.lengths.contiguous()
        found = torch.empty(tokens.size(0), tokens.size(1) + 1, dtype=torch.long)
        call = self._call
        describe_rows(rows, call.rows)
        call.block, call.draft = tokens.size(1), tokens.data_ptr()
        call.draft_lengths, call.next = lengths.data_ptr(), found.data_ptr()
        self._library.source_next_after(ctypes.byref(call))
        return found

    def select(self, rows: Tensor) -> None:
        self._source, self._matches = self._source[rows], self._matches[rows]
        self._matched, self._places = self._matched[rows], self._places[rows]
        self._describe()
