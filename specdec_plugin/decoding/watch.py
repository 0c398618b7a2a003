"""A long native call shows how far it is, and ends at Ctrl-C."""

import ctypes
import signal
import threading
from types import TracebackType
from typing import Any, Optional, Type

from ..engine.native.interface import field, structure
from ..progress import Progress

#: Seconds between two looks at what is done.
PAUSE = 0.2
#: Fewer sentences get no bar of their own.
LEAST = 16
_Tell = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@structure
class WatchCall(ctypes.Structure):
    """How the kernels tell what is done; see watch.h."""

    tell = field("const void*", "a function of sentences and tokens, 1 to stop; or null")
    pause = field("double", "seconds between two calls of it")


class Watch:
    """While it is entered, a native call may be watched.

    Ctrl-C does not interrupt native code, and Python would handle it when the call is over. So a
    handler notes it meanwhile, the call ends early, and ``KeyboardInterrupt`` is raised then. A
    program with a handler of its own keeps it.

    Args:
        sentences: of the call.
        shown: whether a bar shows what is done.

    Attributes:
        call: for the kernels.
    """

    def __init__(self, sentences: int, shown: bool) -> None:
        self.call = WatchCall(pause=PAUSE)
        self._listens = self._interrupted = False
        self._bar: Optional[Progress] = None
        self._sentences = self._tokens = 0
        # ctypes holds no reference to a function that only C++ knows.
        self._tell = _Tell(self._told)
        self.call.tell = ctypes.cast(self._tell, ctypes.c_void_p)
        if shown and sentences >= LEAST:
            self._bar = Progress(total=sentences, unit="sentence", leave=False, position=1, delay=1)

    def __enter__(self) -> "Watch":
        if threading.current_thread() is threading.main_thread():
            self._listens = signal.getsignal(signal.SIGINT) is signal.default_int_handler
        if self._listens:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        del self._tell  # or both would keep each other
        if self._bar is not None:
            self._bar.close()
        if self._listens:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._interrupted:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: Any) -> None:
        self._interrupted = True

    def _told(self, sentences: int, tokens: int) -> int:
        if self._bar is not None:
            self._bar.add(sentences - self._sentences, tokens - self._tokens)
        self._sentences, self._tokens = sentences, tokens
        return int(self._interrupted)
