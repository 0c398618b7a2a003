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
