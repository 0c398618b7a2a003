"""Whether drafts of a beam search pay, by measuring steps with and without them."""

from typing import List

#: Batches of each kind that are measured first, and the share of later ones that try the other.
_FIRST, _TRIES = 2, 32
#: How much of the measured past counts after another batch.
_MEMORY = 0.9


class BatchGuard:
    """Chooses the faster of two ways to search, which find the same.

    The cost of a step depends on the model, the machine and its other work, so it is measured all
    the time: one batch of 32 is searched in the way that was slower.
    """

    def __init__(self) -> None:
        self._batches = 0
        self._seconds, self._steps = [0.0, 0.0], [0.0, 0.0]  # without and with drafts

    def drafts(self) -> bool:
        """Whether to draft in the next batch."""
        number, self._batches = self._batches, self._batches + 1
        if number < 2 * _FIRST:
            return number % 2 == 0
        faster = self._pace(1) < self._pace(0)
        return faster != (number % _TRIES == 0)

    def record(self, seconds: List[float], steps: List[int]) -> None:
        """Note a batch: the time and the number of its steps without and with drafts."""
        for kind in (0, 1):
            if steps[kind] > 0:
                self._seconds[kind] = _MEMORY * self._seconds[kind] + seconds[kind]
                self._steps[kind] = _MEMORY * self._steps[kind] + steps[kind]

    def _pace(self, kind: int) -> float:
        """Seconds a step; unknown ones are worth a try."""
        return self._seconds[kind] / self._steps[kind] if self._steps[kind] else 0.0
