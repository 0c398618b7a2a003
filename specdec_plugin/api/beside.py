"""What is given beside lines, one for each, and read with them."""

from itertools import islice
from typing import Generic, Iterable, List, Optional, TypeVar

from ..errors import PluginError
from .arguments import check_lines

T = TypeVar("T")


class Beside(Generic[T]):
    """Such values, of which as many are read as lines are.

    Args:
        given: the values; None: nothing is given.
        name: of several, in messages.

    Raises:
        PluginError: it is a single text.
    """

    def __init__(self, given: Optional[Iterable[T]], name: str) -> None:
        if given is not None:
            check_lines(given)
        self._left = None if given is None else iter(given)
        self._name, self._read = name, 0

    def of(self, lines: int) -> Optional[List[T]]:
        """The values of the next lines; None: nothing is given.

        Raises:
            PluginError: there are too few.
        """
        if self._left is None:
            return None
        found = list(islice(self._left, lines))
        self._read += len(found)
        if len(found) < lines:
            raise PluginError(
                f"There are {self._read:,} {self._name}, and more lines: give one for each line, "
                "which may be empty."
            )
        return found

    def check_end(self) -> None:
        """Refuse values that no line is left for; PluginError tells of them."""
        for _ in self._left or ():
            raise PluginError(
                f"There are more {self._name} than the {self._read:,} lines: give one for each "
                "line, which may be empty."
            )
