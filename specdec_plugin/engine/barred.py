"""A symbol that may not be chosen yet."""

from typing import NamedTuple

from torch import Tensor


class Barred(NamedTuple):
    """A symbol that is ruled out at the first steps, after normalisers are computed.

    Attributes:
        symbol: its number.
        steps: (…,) long, the step of each state; 0 chooses a row's first token.
        least: the first step at which it is allowed.
    """

    symbol: int
    steps: Tensor
    least: int

    def flat(self) -> "Barred":
        """The same of all states in one row: (states,)."""
        return self._replace(steps=self.steps.flatten())

    def bar(self, values: Tensor) -> None:
        """Let the symbol have no chance.

        Args:
            values: (…, vocabulary) scores, which are changed.
        """
        values[..., self.symbol].masked_fill_(self.steps < self.least, float("-inf"))
