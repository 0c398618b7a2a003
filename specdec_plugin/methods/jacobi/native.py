"""N-gram lookup in one call of the native kernels."""

import ctypes
import weakref
from typing import Optional

import torch
from torch import Tensor

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.state import Draft, Rows
from ...engine import native
from ...engine.native import pointer
from .ngram_lookup import Record, Window


class NativeNgramLookup:
    """What :class:`.guesses.NgramLookup` does, a call of the kernels each; its arguments."""

    def __init__(
        self, window: Window, record: Record, eos: int, source: Optional[Tensor], rows: int
    ) -> None:
        self._library = native.library()
        self._scratch: int = self._library.guesser_new()
        weakref.finalize(self, self._library.guesser_free, self._scratch)
        self._record, self._source = record, source
        self._known = torch.zeros(rows, dtype=torch.long)
        self._before = torch.zeros(rows, dtype=torch.long)
        self._origins = torch.empty(0, dtype=torch.long)
        self._buffer = DraftBuffer(window.block)
        call = native.Guessing(block=window.block, size=window.size, floor=window.floor, eos=eos)
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
        call.before, call.origins = self._before.data_ptr(), self._origins.data_ptr()
        call.known, call.source = self._known.data_ptr(), pointer(self._source)
        call.source_length = 0 if self._source is None else self._source.size(1)

    def guess(self, rows: Rows, until: int) -> Draft:
        """A draft, which the next one overwrites; see :meth:`.guesses.NgramLookup.guess`."""
        describe_rows(rows, self._call.rows)
        self._call.until = until
        self._library.guesser_guess(self._scratch, ctypes.byref(self._call))
        return self._buffer.draft

    def learn(self, rows: Rows) -> None:
        """See :meth:`.guesses.NgramLookup.learn`."""
        describe_rows(rows, self._call.rows)
        self._library.guesser_learn(self._scratch, ctypes.byref(self._call))

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._known, self._before = self._known[rows], self._before[rows]
        if self._source is not None:
            self._source = self._source[rows]
        self._fit(len(rows))
