"""The contract between the loop and whoever proposes tokens."""

from abc import ABC, abstractmethod
from typing import ClassVar, FrozenSet

from torch import Tensor

from .state import Batch, Draft, Outcome, Rows


class Drafter(ABC):
    """Proposes tokens; with exact acceptance, only speed depends on them.

    The loop calls :meth:`start` once a batch, and then in each iteration :meth:`propose` (unless
    too many rows are left, or a prefix is forced), :meth:`accept`, and, when rows have ended,
    :meth:`select`.

    Attributes:
        needs: what :meth:`accept` must be told besides the counts: ``argmax`` and ``hidden``, the
            fields of :class:`.state.Outcome`.
    """

    needs: ClassVar[FrozenSet[str]] = frozenset()

    def start(self, batch: Batch) -> None:  # noqa: B027 - some prepare nothing
        """Begin a batch, and forget the one before."""

    @abstractmethod
    def propose(self, rows: Rows) -> Draft:
        """Tokens that may follow each row."""

    def accept(self, rows: Rows, outcome: Outcome) -> None:  # noqa: B027 - some learn nothing
        """Learn how an iteration turned out, whoever drafted in it.

        Args:
            rows: all rows of the iteration, those that have ended among them, with the new tokens.
            outcome: what was drafted, kept and added.
        """

    def select(self, rows: Tensor) -> None:  # noqa: B027 - some hold nothing of the rows
        """Continue with these rows only: (rows,) indices into the current ones."""

    def forget(self) -> None:  # noqa: B027 - most remember nothing
        """Forget what was learned from the batches before."""
