"""The contract between the loop and whoever proposes tokens."""

from abc import ABC, abstractmethod

from torch import Tensor

from .state import Batch, Draft, Rows


class Drafter(ABC):
    """Proposes tokens; whatever they are, only speed depends on them.

    What became of a draft can be seen in the rows when the next one is wanted. A drafter that
    also wants the verifier's word on each drafted place makes ``rows.iterate`` in its first
    :meth:`propose`.
    """

    def start(self, batch: Batch) -> None:  # noqa: B027 - some prepare nothing
        """Begin a batch; forget the one before."""

    @abstractmethod
    def propose(self, rows: Rows) -> Draft:
        """Tokens that may follow each row."""

    def ending(self, rows: Rows) -> None:  # noqa: B027 - most need not know
        """See the rows for the last time before those that have ended leave."""

    def forget(self) -> None:  # noqa: B027 - most remember nothing
        """Forget what was learned from the batches before, as if this were new."""

    def select(self, rows: Tensor) -> None:  # noqa: B027 - some hold nothing of the rows
        """Go on with these rows only: (rows,) indices into the current ones."""
