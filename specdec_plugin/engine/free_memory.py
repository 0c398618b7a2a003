"""Freed memory, given back to the system while a corpus is decoded.

Batches of different shapes leave holes in the C library's heap. glibc keeps them until it is told
otherwise.
"""

import ctypes
import time
from typing import Any, Callable, List, Optional

#: Between two times. Each takes up to 10 ms, and afterwards the system hands pages out again.
SECONDS = 5.0
#: Batches of so many sentences free what they needed. Else the memory of a long run would rise as
#: long as longer sentences came. Smaller ones would lose more time, because the system has to hand
#: the pages out again.
LARGE_BATCH = 256


class FreeMemory:
    """Gives freed memory back now and then.

    Args:
        trim: glibc's ``malloc_trim``, or what stands for it; None where there is none.
        clock: seconds since any moment, rising.
    """

    def __init__(
        self, trim: Optional[Callable[[int], Any]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._trim, self._clock = trim, clock
        self._since = clock()
        self._frees: List[Callable[[], Any]] = []

    def ask(self, free: Callable[[], Any]) -> None:
        """Let ``free`` be called each time, which frees what this thread holds for later calls."""
        if free not in self._frees:
            self._frees.append(free)

    def give_back(self, now: bool = False) -> None:
        """Call it where much was freed.

        Args:
            now: even if it did so some seconds ago.
        """
        if not now and self._clock() - self._since < SECONDS:
            return
        for free in self._frees:
            free()
        if self._trim is not None:
            self._trim(0)
        self._since = self._clock()


def glibc_trim() -> Optional[Callable[[int], Any]]:
    """``malloc_trim`` of this process's C library; None for those that have none."""
    try:
        return getattr(ctypes.CDLL(None), "malloc_trim", None)
    except (OSError, TypeError):  # TypeError on Windows, which has no library without a name
        return None


#: This process's, which all generators share.
HEAP = FreeMemory(glibc_trim())
