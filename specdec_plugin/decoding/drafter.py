"""The contract between the loop and whoever proposes tokens."""

from abc import ABC, abstractmethod
from typing import FrozenSet, Optional, Sequence

import torch
from torch import Tensor

from .captured_iterations import CapturedIterations
from .native_verification import NativeVerification, Repeated
from .operations import Work
from .state import Batch, Draft, Outcome, Rows


class Drafter(ABC):
    """Proposes tokens; with exact acceptance, only speed depends on them.

    The loop calls :meth:`start` when drafts are first wanted for the rows that are left, and then
    in each iteration :meth:`propose`, :meth:`accept`, and, when rows have ended, :meth:`select`.
    When no drafts are wanted any more, it calls :meth:`stop`, and none of them until it starts the
    drafter again.

    Attributes:
        needs: what :meth:`accept` must be told besides the counts: ``argmax`` and ``hidden``, the
            fields of :class:`.state.Outcome`.
        lengths: the draft lengths that the loop may choose among, rising; () for no choice.
        length: the one that it chose.
        promising: rows up to which drafts are likely to pay, so that they are tried at once; None
            where nothing is known.
    """

    needs: FrozenSet[str] = frozenset()
    lengths: Sequence[int] = ()
    length: int = 0
    promising: Optional[int] = None

    def refresh(self) -> None:  # noqa: B027 - most need nothing
        """Do before a batch what takes long now and then; the gate does not count its time."""

    def start(self, batch: Batch) -> None:  # noqa: B027 - some prepare nothing
        """Begin with these rows, which may have tokens already, and forget those before."""

    def too_late(self, batch: Batch, rows: Rows) -> bool:
        """Whether it should not begin with these rows, because it had to read too much first.

        Args:
            batch: the whole one.
            rows: those that are left.
        """
        return False

    @abstractmethod
    def propose(self, rows: Rows) -> Draft:
        """Tokens that may follow each row."""

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """Draft, verify and learn, several times, if the kernels do it in one call.

        Args:
            rows: the rows.
            verification: who verifies, by :meth:`.NativeVerification.repeat`.
            most: iterations.

        Returns:
            what became of them; None where :meth:`propose` and :meth:`accept` have to be called
            for each iteration.
        """
        return None

    def iterate_captured(
        self, rows: Rows, iterations: CapturedIterations, most: int
    ) -> Optional[Repeated]:
        """:meth:`iterate` on a GPU, if drafts need no host.

        Args:
            rows: the rows.
            iterations: who verifies, by :meth:`.CapturedIterations.repeat`.
            most: iterations.
        """
        return None

    def accept(self, rows: Rows, outcome: Outcome) -> None:  # noqa: B027 - some learn nothing
        """Learn how an iteration turned out, whoever drafted in it.

        Args:
            rows: all rows of the iteration, those that have ended among them, with the new tokens.
            outcome: what was drafted, kept and added.
        """

    def ended(self, tokens: Tensor) -> None:  # noqa: B027 - most learn nothing
        """Learn from a sentence that has ended, whether drafts were wanted or not.

        Args:
            tokens: (length,) what was chosen, a view that later sentences overwrite. It is on the
                device or on the CPU, now one and then the other.
        """

    def select(self, rows: Tensor) -> None:  # noqa: B027 - some hold nothing of the rows
        """Continue with these rows only: (rows,) indices into the current ones."""

    def stop(self) -> None:  # noqa: B027 - most hold little
        """Let go of the batch: its encoder outputs may take much memory."""

    def forget(self) -> None:  # noqa: B027 - most remember nothing
        """Forget what was learned from the batches before."""

    def cost(self, work: Work, alone: bool = True) -> float:
        """Operations that drafts took, for the FLOPs of ``specdec-bench``.

        Args:
            work: a batch.
            alone: whether all drafts were its own, so that their lengths tell what it computed.
        """
        return 0.0


def confident(scores: Tensor, floor: float) -> Tensor:
    """(rows,) how many tokens of each row are all right with a probability of ``floor`` or more.

    Args:
        scores: (rows, k) log-probabilities of the drafted tokens.
        floor: 0 for all tokens.
    """
    if floor <= 0:
        return torch.full((scores.size(0),), scores.size(1), device=scores.device)
    return (scores.cumsum(1).exp() >= floor).long().sum(1)
