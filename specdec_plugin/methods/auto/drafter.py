"""Several drafters, of which the loop takes the one whose drafts pay most."""

from typing import Any, Optional, Sequence

from torch import Tensor

from ...decoding.captured_iterations import CapturedIterations
from ...decoding.drafter import Drafter
from ...decoding.native_verification import NativeVerification, Repeated
from ...decoding.operations import Work
from ...decoding.state import Batch, Draft, Outcome, Rows


class OneOfDrafters(Drafter):
    """Drafts by one of several drafters at a time.

    To the loop each length of each drafter is a length. So it measures and chooses a drafter as it
    does a length.

    Args:
        drafters: the one to try first comes last.

    Attributes:
        drafters: as given.
        drafted: tokens that each of them has drafted.
    """

    def __init__(self, drafters: Sequence[Drafter]) -> None:
        self.drafters = drafters
        self.needs = frozenset().union(*(each.needs for each in drafters))
        self.drafted = [0] * len(drafters)
        self._arms = [
            (number, length)
            for number, each in enumerate(drafters)
            for length in each.lengths or [each.length]
        ]
        self.lengths = range(len(self._arms))
        self.length = self.lengths[-1]
        self.promising = drafters[-1].promising
        self._batch: Any = None
        self._order: Optional[Tensor] = None
        self._active: Optional[int] = None

    def refresh(self) -> None:
        """See :meth:`.Drafter.refresh`."""
        for each in self.drafters:
            each.refresh()

    def start(self, batch: Batch) -> None:
        """See :meth:`.Drafter.start`. A drafter starts when its turn comes."""
        self._batch, self._order, self._active = batch, None, None

    def too_late(self, batch: Batch, rows: Rows) -> bool:
        """Whether it is for all of them."""
        return all(each.too_late(batch, rows) for each in self.drafters)

    def propose(self, rows: Rows) -> Draft:
        """What the chosen drafter proposes."""
        return self._chosen().propose(rows)

    def iterate(
        self, rows: Rows, verification: NativeVerification, most: int
    ) -> Optional[Repeated]:
        """See :meth:`.Drafter.iterate`."""
        return self._counted(self._chosen().iterate(rows, verification, most))

    def iterate_captured(
        self, rows: Rows, iterations: CapturedIterations, most: int
    ) -> Optional[Repeated]:
        """See :meth:`.Drafter.iterate_captured`."""
        return self._counted(self._chosen().iterate_captured(rows, iterations, most))

    def _counted(self, found: Optional[Repeated]) -> Optional[Repeated]:
        if found is not None:
            self._count(sum(found.drafted))
        return found

    def accept(self, rows: Rows, outcome: Outcome) -> None:
        """The active drafter may learn from it."""
        if self._active is not None:
            self._count(sum(outcome.drafted))
            self.drafters[self._active].accept(rows, outcome)

    def ended(self, tokens: Tensor) -> None:
        """See :meth:`.Drafter.ended`: each may learn, whoever drafted."""
        for each in self.drafters:
            each.ended(tokens)

    def select(self, rows: Tensor) -> None:
        self._order = rows if self._order is None else self._order[rows]
        if self._active is not None:
            self.drafters[self._active].select(rows)

    def stop(self) -> None:
        """See :meth:`.Drafter.stop`."""
        self._batch = self._order = self._active = None
        for each in self.drafters:
            each.stop()

    def forget(self) -> None:
        """See :meth:`.Drafter.forget`."""
        self.drafted = [0] * len(self.drafters)
        for each in self.drafters:
            each.forget()

    def share(self, number: int) -> float:
        """Of all drafted tokens, those of a drafter."""
        return self.drafted[number] / max(1, sum(self.drafted))

    def cost(self, work: Work, alone: bool = True) -> float:
        """That of each drafter's share of the drafted tokens."""
        costs = (each.cost(work, alone=False) for each in self.drafters)
        return sum(self.share(number) * cost for number, cost in enumerate(costs))

    def _count(self, drafted: int) -> None:
        assert self._active is not None
        self.drafted[self._active] += drafted

    def _chosen(self) -> Drafter:
        """The drafter of the chosen length, which starts where another one drafted before."""
        number, length = self._arms[self.length]
        drafter = self.drafters[number]
        if number != self._active:
            if self._active is not None:
                self.drafters[self._active].stop()
            order = self._order
            drafter.start(self._batch if order is None else self._batch.select(order))
            self._active = number
        drafter.length = length
        return drafter
