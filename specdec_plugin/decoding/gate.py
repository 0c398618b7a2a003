"""The contract between the loop and whoever decides when to draft.

:class:`FixedGate` measures nothing. :class:`.guard.Guard` is the gate that measures.
"""

from typing import NamedTuple, Optional, Protocol

#: Stands for the longest draft; see :meth:`Gate.choose`.
LONGEST = 1 << 30


class Paces(NamedTuple):
    """Tokens a second without and with drafts."""

    without: float
    drafted: float


class Measured(Protocol):
    """Knows whether drafts paid."""

    def see(self, length: int) -> None:
        """Notice how long the sources of a batch are, before anything is asked about it."""

    def paces(self) -> Optional[Paces]:
        """What was measured, where most time was spent; None if nothing was compared."""


class Gate(Measured, Protocol):
    """Decides in each iteration whether to draft."""

    def begin(self) -> None:
        """Begin a batch."""

    def choose(self, rows: int, tokens: int, drafts: bool = True) -> int:
        """The arm of this iteration: 0 drafts nothing, and the draft lengths count from 1.

        A number beyond the lengths means the longest one.

        Args:
            rows: how many are left.
            tokens: that were added before this iteration, since any fixed moment.
            drafts: whether they may still pay; else the answer is 0, unless there always are.
        """

    def ahead(self) -> int:
        """How many more iterations need no other answer, while no row ends."""

    def skip(self, iterations: int) -> None:
        """So many iterations took place without a question."""

    def end(self, tokens: int) -> None:
        """End a batch; see :meth:`choose`."""

    def rests(self, rows: int) -> bool:
        """Whether no draft is wanted while a batch of so many rows is decoded."""

    def undrafted(self, rows: int, tokens: int, seconds: float) -> None:
        """Note a batch that was decoded without asking."""

    def explored(self, rows: int) -> bool:
        """Whether all drafts were measured with so many rows."""

    def forget(self) -> None:
        """Forget what was measured."""


class FixedGate:
    """Drafts while at most so many rows are left.

    Args:
        max_rows: None: always.
    """

    def __init__(self, max_rows: Optional[int] = None) -> None:
        self.max_rows = max_rows

    def see(self, length: int) -> None:
        """Nothing is measured."""

    def begin(self) -> None:
        """Nothing is measured."""

    def choose(self, rows: int, tokens: int, drafts: bool = True) -> int:
        """See :class:`Gate`."""
        if self.max_rows is None:
            return LONGEST
        return LONGEST if drafts and rows <= self.max_rows else 0

    def ahead(self) -> int:
        """See :class:`Gate`."""
        return LONGEST

    def skip(self, iterations: int) -> None:
        """Nothing is measured."""

    def end(self, tokens: int) -> None:
        """Nothing is measured."""

    def rests(self, rows: int) -> bool:
        """See :class:`Gate`."""
        return False

    def undrafted(self, rows: int, tokens: int, seconds: float) -> None:
        """Nothing is measured."""

    def explored(self, rows: int) -> bool:
        """Nothing is measured."""
        return True

    def forget(self) -> None:
        """Nothing is measured."""

    def paces(self) -> Optional[Paces]:
        """Nothing is measured."""
        return None
