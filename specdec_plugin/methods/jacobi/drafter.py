"""Jacobi solvers of any existing model (paper 000): nothing is trained.

Greedy decoding is a triangular system of equations, a token each. A Jacobi iteration
computes all of them from the tokens of the iteration before, the iterate; the loop keeps
what is settled, so that the draft is the rest of the iterate. Where the iterate has nothing yet
there are initial guesses, and beyond the paper what followed the same symbols elsewhere.
"""

import sys
from typing import Any, Optional

import torch
from torch import Tensor

from ...decoding.drafter import Drafter
from ...decoding.state import Batch, Draft, Rows
from ...decoding.symbols import Symbols
from ...engine import native
from .native import NativeNgramLookup
from .ngram_lookup import NgramLookup, Record, Window, initial_guesses


class JacobiDrafter(Drafter):
    """Drafts what is left of the iterate.

    Args:
        window: which places are guessed.
        symbols: of the dictionaries.
        initial: guesses before the first iteration: ``pad``, ``source``, ``random``, or
            ``ngram``, which continues what the source or the output had before.
        until: places from here on are decoded one by one (paper 000, Algorithm 3).
        entries: n-grams of each order that are remembered from sentence to sentence.
    """

    def __init__(
        self,
        window: Window,
        symbols: Symbols,
        initial: str = "pad",
        until: int = sys.maxsize,
        entries: int = 0,
    ) -> None:
        self._window, self._symbols, self._initial = window, symbols, initial
        self._until, self._entries = until, entries
        self._record: Optional[Record] = None
        self._guesses: Any = None
        self._iterate = torch.empty(0)
        self._limit = 0
        self._guessed = False

    def start(self, batch: Batch) -> None:
        """Make initial guesses."""
        device = batch.device
        if self._record is None or self._record.tries.device != device:
            self._record = Record(self._entries, device)
        width = min(batch.constraints.max_len + 1, self._until)
        self._limit = width
        source = None
        if self._initial in ("source", "ngram"):
            source = self._symbols.source(batch.net_input["src_tokens"])
        ordinary = self._symbols.ordinary.to(device)
        # The step notes what it says of any place up to the limit.
        room = batch.constraints.max_len + 1
        self._iterate = initial_guesses(self._initial, batch, ordinary, room, source)
        matched = source if self._initial == "ngram" else None
        window = self._window._replace(block=min(self._window.block, width))
        one_call = device.type == "cpu" and native.library() is not None
        make: Any = NativeNgramLookup if one_call else NgramLookup
        self._guesses = make(window, self._record, self._symbols.eos, matched, batch.size)
        self._guessed = False

    def propose(self, rows: Rows) -> Draft:
        """The iterate and guesses, as many as the window lets through."""
        if not self._guessed:
            rows.iterate, self._guessed = self._iterate, True
        draft: Draft = self._guesses.guess(rows, self._limit)
        return draft

    def ending(self, rows: Rows) -> None:
        """Learn from what the verifier said."""
        if self._guessed:
            self._guesses.learn(rows)

    def forget(self) -> None:
        """Forget which origins were right, and all n-grams."""
        self._record = None

    def select(self, rows: Tensor) -> None:
        """Go on with these rows."""
        self._guesses.select(rows)
        if not self._guessed:
            self._iterate = self._iterate[rows]
