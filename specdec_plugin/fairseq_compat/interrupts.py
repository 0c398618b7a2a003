"""Ctrl-C in a command line, and a reader that has gone: no traceback, and the status of shells."""

import atexit
import contextlib
import errno
import functools
import multiprocessing
import os
import select
import sys
from types import TracebackType
from typing import Callable, Optional, Sequence, Type

from ..errors import FLAGS_ARE_TYPED

#: Of a program that SIGINT ended, as shells tell it.
STATUS = 130
#: Of one that SIGPIPE ended, such as by ``| head``, likewise.
PIPE_STATUS = 141


def console_program(main: Callable[..., None]) -> Callable[..., None]:
    """Decorator of a program's ``main``: see :func:`end_in_a_line`; messages name its flags."""

    @functools.wraps(main)
    def run(argv: Optional[Sequence[str]] = None) -> None:
        end_in_a_line()
        token = FLAGS_ARE_TYPED.set(True)
        try:
            main(argv)
        finally:
            FLAGS_ARE_TYPED.reset(token)

    return run


def end_in_a_line() -> None:
    """Let Ctrl-C, a reader that has gone and a full disk end this process without a traceback.

    Ctrl-C ends it with a line and :data:`STATUS`. Where nobody reads the output any more, it ends
    without a word, with :data:`PIPE_STATUS`. Nothing changes where others handle errors.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _end
        atexit.register(_flush)


def _end(kind: Type[BaseException], error: BaseException, trace: Optional[TracebackType]) -> None:
    """Tell an error that nobody has handled. Files that ``with`` opened are closed by now."""
    if issubclass(kind, KeyboardInterrupt):
        status, told = STATUS, "\nInterrupted: the output is not complete.\n"
    elif issubclass(kind, BrokenPipeError) and _is_unread():
        status, told = PIPE_STATUS, ""
    elif isinstance(error, OSError) and error.errno == errno.ENOSPC:
        what = error.filename or "The output"
        status, told = 1, f"{what} cannot be written ({error.strerror}). Make room on its disk.\n"
    else:
        sys.__excepthook__(kind, error, trace)
        return
    for child in multiprocessing.active_children():  # they read data
        child.terminate()
    for stream, text in ((sys.stdout, ""), (sys.stderr, told)):
        with contextlib.suppress(OSError):
            stream.write(text)
            stream.flush()
    # Python would take a second or more to give back the memory of a large model, piece by piece.
    os._exit(status)


def _is_unread() -> bool:
    """Whether the standard output is a pipe that nobody reads any more."""
    # Not every system has poll, and not every output has a number.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    return False


def _flush() -> None:
    """Python would tell a broken pipe when it flushes the rest at the end."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
