"""Jacobi solvers of any existing model (Santilli et al., 2023): nothing is trained.

Greedy decoding is a triangular system of equations, one for each token. A Jacobi iteration
computes all of them from the tokens of the iteration before, the iterate. The loop keeps what is
settled, so the draft is the rest of the iterate. Positions without an iterate have initial
guesses, and, beyond the paper, what followed the same symbols elsewhere.
"""

import sys
from collections import deque
from typing import Any, Deque, List, Optional

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from ...decoding.drafter import Drafter
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.state import Batch, Draft, Outcome, Rows
from ...decoding.symbols import Symbols
from ...engine import Backend, choose_backend
from ...errors import PluginError
from ...fairseq_compat.late_input import on_host
from .native import NativeNgramLookup, learn
from .ngram_lookup import NgramLookup, Record, Window, initial_guesses

#: Sentences that wait to be learned from until drafts are wanted. Older ones are left out, because
#: learning is part of the time of the drafts.
_WAITING = 256


class JacobiDrafter(Drafter):
    """Drafts what is left of the iterate.

    Args:
        window: which positions are drafted.
        symbols: of the dictionaries.
        initial: initial guesses: ``pad``, ``source``, ``random``, or ``ngram``, which continues
            what the source or the output had before.
        until: positions from here on are decoded one by one (Santilli et al., 2023, Algorithm 3).
        entries: n-grams of each order that are remembered from sentence to sentence.
        backend: who computes; None chooses.
        known_length: no position is drafted behind the length of the data's target, which is
            taken for that of the output (Santilli et al., 2023, section 4.1).
    """

    needs = frozenset(["argmax"])

    def __init__(
        self,
        window: Window,
        symbols: Symbols,
        initial: str = "pad",
        until: int = sys.maxsize,
        entries: int = 0,
        backend: Optional[Backend] = None,
        known_length: bool = False,
    ) -> None:
        self._window, self._symbols, self._initial = window, symbols, initial
        self._until, self._entries, self._backend = until, entries, backend
        self._record: Optional[Record] = None
        self._waiting: Deque[Tensor] = deque(maxlen=_WAITING)
        self._lookup: Any = None
        self._limit = 0
        self._known_length = known_length
        self._lengths: Optional[Tensor] = None

    def start(self, batch: Batch) -> None:
        """Make initial guesses."""
        if self._record is None:
            self._record = Record(self._entries)
        self._learn(self._record, batch.bos)
        # The argmax of any position up to the length limit is noted.
        room = batch.constraints.max_len + 1
        self._limit = min(room, self._until)
        if self._known_length:
            self._lengths = _target_lengths(batch)
            self._limit = min(self._limit, int(self._lengths.max()))
        source = None
        if self._initial in ("source", "ngram"):
            source = self._symbols.source(on_host(batch.net_input)["src_tokens"].cpu())
        initial = initial_guesses(self._initial, batch, self._symbols.ordinary, room, source)
        matched = source if self._initial == "ngram" else None
        window = self._window._replace(block=min(self._window.block, self._limit))
        backend = self._backend or choose_backend(batch.device)
        make: Any = NativeNgramLookup if backend.unsupported() is None else NgramLookup
        self._lookup = make(window, self._record, self._symbols.eos, matched, initial)

    def propose(self, rows: Rows) -> Draft:
        """The iterate and what was found, as many tokens as the window lets through."""
        most = None
        if self._lengths is not None and rows.size > 1:  # else the limit is the row's own
            # The verifier adds the token behind a draft, so the last position is not drafted.
            most = (self._lengths - torch.tensor(rows.host_lengths) - 1).clamp(min=0)
        draft: Draft = self._lookup.draft(rows, self._limit, most)
        return draft

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """See :meth:`.Drafter.iterate`."""
        alone = self._lengths is None or rows.size == 1
        if not alone or not isinstance(self._lookup, NativeNgramLookup):
            return None
        return self._lookup.iterate(rows, self._limit, verification, most)

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        """Learn from the verifier's argmax."""
        self._lookup.accept(rows, outcome)

    def ended(self, tokens: Tensor) -> None:
        """Learn later which symbols follow which, when drafts are wanted."""
        if self._entries > 0:
            self._waiting.append(tokens.clone())

    def _learn(self, record: Record, bos: int) -> None:
        """Learn from the sentences that wait, each of which begins with ``bos``."""
        if not self._waiting:
            return
        lengths = [len(tokens) for tokens in self._waiting]
        waiting = _on_host([*self._waiting])
        lines = F.pad(pad_sequence(waiting, batch_first=True), (1, 0), value=bos)
        self._waiting.clear()
        backend = self._backend or choose_backend(torch.device("cpu"))
        if backend.unsupported() is None:
            learn(record, lines, torch.tensor(lengths))
        else:
            record.learn_all(lines.tolist(), lengths)

    def forget(self) -> None:
        """Forget which origins were right, and all n-grams."""
        self._record = None
        self._waiting.clear()

    def select(self, rows: Tensor) -> None:
        self._lookup.select(rows)
        if self._lengths is not None:
            self._lengths = self._lengths[rows.cpu()]
            self._limit = min(self._limit, int(self._lengths.max()))


def _on_host(lines: List[Tensor]) -> List[Tensor]:
    """Lines of tokens, (length,) each, on the CPU: one copy, for which a GPU is waited for."""
    far = [line for line in lines if line.device.type != "cpu"]
    if not far:
        return lines
    near = iter(pad_sequence(far, batch_first=True).cpu())
    return [line if line.device.type == "cpu" else next(near)[: len(line)] for line in lines]


def _target_lengths(batch: Batch) -> Tensor:
    """(rows,) on the CPU, what is taken for the lengths of the outputs."""
    if batch.target is None:
        raise PluginError(
            "--jacobi-known-length reads the lengths of the data's targets, and here are none: "
            "decode a split with targets, or leave it out."
        )
    return batch.target.ne(batch.constraints.pad).sum(1).cpu()
