"""Whether drafts of a beam search pay, by measuring steps with and without them."""

from typing import List

from ...decoding.trials import CLEARLY, Explorer

#: Batches of each kind that are measured first, and the share of later ones that try the other.
_FIRST, _TRIES = 2, 32
#: Drafts of a trial. One takes as long as several steps, of which it may save none.
TRIAL = 4
#: The steps without drafts whose time trials may lose beyond their share of the time.
_GRACE = 32
#: How much of the measured past counts after another batch.
_MEMORY = 0.8
#: Stands for any number of drafts.
ALL = (1 << 31) - 1


class BatchGuard(Explorer):
    """Chooses the faster of two ways to search, which find the same.

    The cost of a step depends on the model, the machine and its other work, so it is measured all
    the time: now and then a batch is searched in the way that was slower. What such trials lose is
    measured, too, and kept to a small share of the time.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget what was measured."""
        super().forget()
        self._batches, self._tried = 0, False
        # Each without and with drafts.
        self._seconds, self._steps, self._expected = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        self._arm = 0

    def drafts(self) -> int:
        """How many drafts the next batch may have: none, those of a trial, or all."""
        drafted_before = self._steps[1] > 0
        faster = int(drafted_before and self._pace(1) < CLEARLY * self._pace(0))
        if self._batches < 2 * _FIRST:
            due = self._batches % 2 == 1
        else:
            due = self._batches % _TRIES == 0 or not drafted_before
        self._batches += 1
        self._tried = due and self._affords(1 - faster)
        self._arm = 1 - faster if self._tried else faster
        if self._arm == 0:
            return 0
        return TRIAL if self._tried else ALL

    def record(self, seconds: List[float], steps: List[int]) -> None:
        """Note a batch: the time and the number of its steps without and with drafts."""
        for kind in (0, 1):
            if steps[kind] > 0:
                self._seconds[kind] = _MEMORY * self._seconds[kind] + seconds[kind]
                self._steps[kind] = _MEMORY * self._steps[kind] + steps[kind]
                self.spent += seconds[kind]
        arm, other = self._arm, 1 - self._arm
        if self._tried and steps[arm] > 0 and self._steps[other] > 0:
            self._expected[arm] = max(0.0, seconds[arm] - steps[arm] * self._pace(other))
            self.lose(self._expected[arm])

    def _affords(self, kind: int) -> bool:
        """Whether trials may lose what the last batch of a kind has lost."""
        return self._expected[kind] <= self.budget(_GRACE * self._pace(0))

    def _pace(self, kind: int) -> float:
        """Seconds a step; 0 if unknown."""
        return self._seconds[kind] / self._steps[kind] if self._steps[kind] else 0.0
