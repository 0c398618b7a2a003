"""A long native call shows how far it is, and ends at Ctrl-C and other signals."""

import ctypes
import signal
import threading
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Type

from ..engine.native.interface import field, structure
from ..progress import Progress

#: Seconds between two looks at what is done.
PAUSE = 0.2
#: Fewer sentences get no bar of their own.
LEAST = 16
#: Signals that programs handle: to end, to save their work, or to tell how far they are.
_SIGNALS = [
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM")
    if hasattr(signal, name)
]
_Tell = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


@structure
class WatchCall(ctypes.Structure):
    """How the kernels tell what is done; see watch.h."""

    tell = field("const void*", "a function of sentences and tokens, 1 to stop; or null")
    pause = field("double", "seconds between two calls of it")


class Watch:
    """While it is entered, a native call may be watched.

    Python handles a signal when native code calls it, and ctypes drops what a handler raises there.
    So signals are noted meanwhile, and their handlers run when the kernels tell what is done. If
    one raises, as that of Ctrl-C does, the call ends early, and its exception is raised then.

    Args:
        sentences: of the call.
        shown: whether a bar shows what is done.

    Attributes:
        call: for the kernels.
    """

    def __init__(self, sentences: int, shown: bool) -> None:
        self.call = WatchCall(pause=PAUSE)
        self._handlers: Dict[int, Callable[..., Any]] = {}
        self._noted: List[int] = []
        self._error: Optional[BaseException] = None
        self._bar: Optional[Progress] = None
        self._sentences = self._tokens = 0
        # ctypes holds no reference to a function that only C++ knows.
        self._tell = _Tell(self._told)
        self.call.tell = ctypes.cast(self._tell, ctypes.c_void_p)
        if shown and sentences >= LEAST:
            self._bar = Progress(total=sentences, unit="sentence", leave=False, position=1, delay=1)

    def __enter__(self) -> "Watch":
        if threading.current_thread() is threading.main_thread():
            try:
                self._replace()
            except BaseException:  # raised by a handler that was not yet replaced
                self._close()
                self._restore()
                raise
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._close()
        try:
            self._settle()
        except Exception:  # Ctrl-C counts more than the first error, and that more than others.
            if self._error is None:
                raise
        if self._error is not None:
            raise self._error

    def _close(self) -> None:
        del self._tell  # or both would keep each other
        if self._bar is not None:
            self._bar.close()

    def _settle(self) -> None:
        """Give signals their handlers again, and let these run for what was noted."""
        try:
            self._restore()
        except BaseException:  # raised by one that is back already
            self._restore()
            raise
        finally:
            self._handle()

    def _replace(self) -> None:
        for number in _SIGNALS:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _restore(self) -> None:
        """Give signals their handlers again; the last one is that of Ctrl-C, which raises."""
        for number, handler in reversed(self._handlers.items()):
            signal.signal(number, handler)

    def _note(self, number: int, frame: Any) -> None:
        self._noted.append(number)

    def _handle(self) -> None:
        """Let the handlers of the noted signals run, also those behind one that raises."""
        while self._noted:
            number = self._noted.pop(0)
            try:
                self._handlers[number](number, None)
            except BaseException:
                self._handle()
                raise

    def _told(self, sentences: int, tokens: int) -> int:
        if self._bar is not None:
            self._bar.add(sentences - self._sentences, tokens - self._tokens)
        self._sentences, self._tokens = sentences, tokens
        try:
            self._handle()
        except BaseException as error:
            self._error = error
        return int(self._error is not None)
