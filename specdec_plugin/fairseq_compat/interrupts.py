"""Ctrl-C in a command line: one line in place of a traceback, and the exit status of shells."""

import contextlib
import multiprocessing
import os
import sys
from types import TracebackType
from typing import Optional, Type

#: Of a program that SIGINT ended, as shells tell it.
STATUS = 130


def end_in_a_line() -> None:
    """Let Ctrl-C end this process with a line and :data:`STATUS`, unless others handle errors."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end


def _end(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    """Tell an error that nobody has handled. Files that ``with`` opened are closed by now."""
    if not issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    for child in multiprocessing.active_children():  # they read data
        child.terminate()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        print("\nInterrupted: the output is not complete.", file=sys.stderr, flush=True)
    # Python would take a second or more to give back the memory of a large model, piece by piece.
    os._exit(STATUS)
