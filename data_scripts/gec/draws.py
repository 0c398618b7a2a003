"""Random choices that depend on the line, not on the worker or the order that it comes in."""

import random
from typing import Sequence, TypeVar

T = TypeVar("T")


class Draws:
    """A sequence of random choices, which :meth:`restart` begins anew for each line.

    Only ``random.Random.random`` is used, whose numbers Python promises to keep the same
    from version to version; those of ``choice`` or ``shuffle`` have changed.
    """

    def __init__(self) -> None:
        self._generator = random.Random(0)
        #: A number in [0, 1).
        self.uniform = self._generator.random

    def restart(self, *key: int) -> None:
        """Begin the sequence that belongs to these numbers."""
        self._generator.seed(" ".join(map(str, key)))

    def below(self, end: int) -> int:
        """A whole number from 0 to ``end - 1``."""
        return int(self.uniform() * end)

    def pick(self, items: Sequence[T]) -> T:
        """One of them, all alike."""
        return items[int(self.uniform() * len(items))]

    def chance(self, share: float) -> bool:
        """``True`` in so large a share of the cases."""
        return self.uniform() < share
