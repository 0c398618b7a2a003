"""SourceCopy of the source in one call of the native kernels."""

import ctypes

import torch
from torch import Tensor

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import native
from .source_copy import NEAR, start_matches


class NativeSourceCopy:
    """What :class:`.copies.SourceCopy` does, in one call of the kernels; its arguments."""

    def __init__(
        self, source: Tensor, starts: Tensor, block_size: int, eos: int, longest: bool
    ) -> None:
        self._library = native.library()
        self._source, self._matches = source.contiguous(), start_matches(source, starts)
        self._seen, self._places = torch.zeros_like(starts), starts.clone()
        block = min(block_size, source.size(1))
        self._buffer = DraftBuffer(block)
        self._call = native.Copying(block=block, longest=longest, near=NEAR, eos=eos)
        self._describe()

    def _describe(self) -> None:
        call = self._call
        self._buffer.fit(self._source.size(0), call)
        call.source, call.source_length = self._source.data_ptr(), self._source.size(1)
        call.matches, call.seen = self._matches.data_ptr(), self._seen.data_ptr()
        call.places = self._places.data_ptr()

    def draft(self, rows: Rows) -> Draft:
        """What follows in the source, up to its end; the next draft overwrites it."""
        describe_rows(rows, self._call.rows)
        self._library.copies_run(ctypes.byref(self._call))
        return self._buffer.draft

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._source, self._matches = self._source[rows], self._matches[rows]
        self._seen, self._places = self._seen[rows], self._places[rows]
        self._describe()
