"""The contract between the loop and whoever proposes tokens."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from ..state import Batch, Draft, Rows


class Drafter(ABC):
    """Proposes tokens; whatever they are, only speed depends on them.

    Attributes:
        observes: whether :meth:`observe` is to be called.
    """

    observes = False

    @abstractmethod
    def start(self, batch: Batch) -> None:
        """Begin a batch; forget the one before."""

    @abstractmethod
    def propose(self, rows: Rows) -> Draft:
        """Tokens that may follow each row."""

    def observe(self, rows: Rows) -> None:  # noqa: B027 - most have nothing to do
        """See what became of the last draft, before finished rows leave.

        Called where :attr:`observes` is true. A drafter that also wants the verifier's word
        on drafted places makes ``rows.iterate`` in its first :meth:`propose`.
        """

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Go on with these rows only: (rows,) indices into the current ones."""


class NoDrafter(Drafter):
    """Proposes nothing: greedy decoding."""

    def start(self, batch: Batch) -> None:
        """Prepare the empty draft."""
        none = torch.zeros(batch.size, dtype=torch.long, device=batch.device)
        self._draft = Draft(none.view(-1, 1)[:, :0], none)

    def propose(self, rows: Rows) -> Draft:
        """An empty draft, (rows, 0)."""
        return self._draft

    def select(self, rows: Tensor) -> None:
        """Empty drafts for fewer rows."""
        self._draft = Draft(self._draft.tokens[rows], self._draft.lengths[rows])
