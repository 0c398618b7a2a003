"""Copies of the source as a native step."""

import ctypes
from typing import Any, Optional

import torch
from torch import Tensor

from ...decoding.native_rows import DraftBuffer, describe_rows
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.state import Draft, Rows
from ...engine import native
from ...engine.native.interface import Header, field, structure
from ...engine.threads import kernel_threads
from .source_copy import NEAR, start_matches

Header(__file__, "source_copy.h")


@structure
class SourceMatchesCall(ctypes.Structure):
    """Sources, and how much of them is matched; see :class:`.source_copy.SourceMatches`."""

    symbols = field("const int64_t*", "(count, length) -1: no symbol of the output")
    length = field("int")
    near = field("int", "how far a match of a single symbol may be")
    matches = field(
        "int64_t*",
        "(count, length + 1) how many symbols before a position of the source are the output's "
        "last",
    )
    matched = field("int64_t*", "(count) tokens that the matches take into account")
    positions = field("int64_t*", "(count) where the source was last continued")


@structure
class SourceCopyCall(ctypes.Structure):
    """A draft that copies the source."""

    rows = field("RowsCall")
    source = field("SourceMatchesCall")
    block = field("int", "the most tokens of a draft")
    follow_nearest = field("int", "1: of several matches the nearest counts, and none is needed")
    eos = field("int64_t", "ends a draft")
    draft = field("int64_t*", "(count, block) result, undefined beyond the lengths")
    draft_lengths = field("int64_t*", "(count) result")


@structure
class SourceNextCall(ctypes.Structure):
    """The tokens with which the source continues."""

    rows = field("RowsCall")
    source = field("SourceMatchesCall")
    block = field("int", "tokens that each row of the draft has room for")
    draft = field("const int64_t*", "(count, block)")
    draft_lengths = field("const int64_t*", "(count)")
    next = field("int64_t*", "(count, block + 1) result, -1 where there is none")


class NativeSourceMatches:
    """The tensors of :class:`SourceMatchesCall`; arguments of :class:`.source_copy.SourceMatches`.

    Args:
        call: for the kernels, with a ``source``.
    """

    def __init__(self, source: Tensor, starts: Tensor, call: Any) -> None:
        self._library, self._call = native.library(), call
        self._source, self._matches = source.contiguous(), start_matches(source, starts)
        self._matched, self._positions = torch.zeros_like(starts), starts.clone()
        self._describe()

    def _describe(self) -> None:
        known = self._call.source
        known.symbols, known.length = self._source.data_ptr(), self._source.size(1)
        known.matches, known.matched = self._matches.data_ptr(), self._matched.data_ptr()
        known.positions, known.near = self._positions.data_ptr(), NEAR

    def select(self, rows: Tensor) -> None:
        """Continue with these rows."""
        self._source, self._matches = self._source[rows], self._matches[rows]
        self._matched, self._positions = self._matched[rows], self._positions[rows]
        self._describe()


class NativeSourceCopy(NativeSourceMatches):
    """What :class:`.source_copy.SourceCopy` does, as one native step; its arguments."""

    def __init__(
        self, source: Tensor, starts: Tensor, block_size: int, eos: int, longest: bool
    ) -> None:
        block = min(block_size, source.size(1))
        self._buffer = DraftBuffer(block)
        super().__init__(
            source, starts, SourceCopyCall(block=block, follow_nearest=longest, eos=eos)
        )

    def _describe(self) -> None:
        super()._describe()
        self._buffer.fit(self._source.size(0), self._call)

    def draft(self, rows: Rows) -> Draft:
        """What follows in the source, up to its end; the next draft overwrites it."""
        self._library.source_copy_draft(self._describe_rows(rows))
        return self._buffer.draft

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """Draft and verify several times; see :meth:`.Drafter.iterate`."""

        def run(*arguments: Any) -> None:
            own = self._describe_rows(rows)
            self._library.source_copy_iterate(own, *arguments, kernel_threads())

        return verification.repeat(rows, self._buffer.draft, most, run)

    def _describe_rows(self, rows: Rows) -> Any:
        describe_rows(rows, self._call.rows)
        return ctypes.byref(self._call)


class NativeSourceNext(NativeSourceMatches):
    """What :class:`.source_copy.SourceNext` does, as one native step; its arguments."""

    def __init__(self, source: Tensor, starts: Tensor) -> None:
        super().__init__(source, starts, SourceNextCall())

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
