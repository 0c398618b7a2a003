"""Input-guided aggressive decoding (Ge et al., 2022, section 3.1): the source is the draft.

It serves tasks whose input and output are nearly equal, such as grammatical error correction.
While both agree, the rest of the source is drafted. Where the model decides otherwise, tokens are
decoded one by one until an end of the output occurs in the source exactly once.
"""

import sys
from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from ...decoding.drafter import Drafter
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.operations import Work
from ...decoding.state import Batch, Draft, Rows
from ...decoding.symbols import Symbols
from ...engine import Backend, choose_backend
from .native import NativeSourceCopy
from .source_copy import SourceCopy, sources_of


class InputGuidedDrafter(Drafter):
    """Drafts what follows in the source.

    Args:
        symbols: of the dictionaries.
        block_size: most tokens of a draft.
        longest: see :class:`.source_copy.SourceCopy`.
        fallback: drafts for rows where there is nothing to follow, and learns from no outcome; or
            None.
        fallback_rows: the fallback is asked only while at most so many rows are left; None: always.
        backend: who computes; None chooses.
    """

    def __init__(
        self,
        symbols: Symbols,
        block_size: int,
        longest: bool = False,
        fallback: Optional[Drafter] = None,
        fallback_rows: Optional[int] = None,
        backend: Optional[Backend] = None,
    ) -> None:
        self._symbols, self._block_size = symbols, block_size
        self._longest, self.fallback = longest, fallback
        self._fallback_rows = sys.maxsize if fallback_rows is None else fallback_rows
        self._backend = backend
        self._copies: Any = None

    def start(self, batch: Batch) -> None:
        """Begin at the start of the source, which counts as a match."""
        backend = self._backend or choose_backend(batch.device)
        make: Any = NativeSourceCopy if backend.unsupported() is None else SourceCopy
        source, starts = sources_of(batch, self._symbols)
        self._copies = make(source, starts, self._block_size, self._symbols.eos, self._longest)
        if self.fallback is not None:
            self.fallback.start(batch)

    def propose(self, rows: Rows) -> Draft:
        """What follows in the source, or else what the fallback drafts."""
        draft: Draft = self._copies.draft(rows)
        if self.fallback is None or rows.size > self._fallback_rows:
            return draft
        # Elsewhere than on a CPU it would have to be waited for.
        if draft.lengths.device.type == "cpu" and bool((draft.lengths > 0).all()):
            return draft
        return _or_else(draft, self.fallback.propose(rows))

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """See :meth:`.Drafter.iterate`."""
        if self.fallback is not None or not isinstance(self._copies, NativeSourceCopy):
            return None
        return self._copies.iterate(rows, verification, most)

    def stop(self) -> None:
        """See :meth:`.Drafter.stop`."""
        if self.fallback is not None:
            self.fallback.stop()

    def cost(self, work: Work, alone: bool = True) -> float:
        """That of the fallback. Copies cost nothing."""
        return 0.0 if self.fallback is None else self.fallback.cost(work, alone=False)

    def select(self, rows: Tensor) -> None:
        self._copies.select(rows)
        if self.fallback is not None:
            self.fallback.select(rows)


def _or_else(draft: Draft, other: Draft) -> Draft:
    """A row's draft, or the other where it has none."""
    width = max(draft.tokens.size(1), other.tokens.size(1))
    empty = draft.lengths == 0
    own, others = (F.pad(each.tokens, (0, width - each.tokens.size(1))) for each in (draft, other))
    tokens = torch.where(empty.unsqueeze(1), others, own)
    return Draft(tokens, torch.where(empty, other.lengths, draft.lengths))
