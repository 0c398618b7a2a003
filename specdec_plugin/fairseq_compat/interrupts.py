"""How a command line ends after Ctrl-C, without a reader, without room, and after an error."""

import atexit
import contextlib
import errno
import functools
import multiprocessing
import os
import select
import sys
import threading
import time
import traceback
from types import TracebackType
from typing import Callable, Optional, Sequence, Tuple, Type

import torch
from fairseq.data.iterators import BackgroundConsumer

from ..errors import FLAGS_ARE_TYPED
from .collector import freeze_imports
from .early_interrupts import STATUS, end_as_usual

#: Of one that SIGPIPE ended, such as by ``| head``, likewise.
PIPE_STATUS = 141
#: Seconds that a thread has for the batch that it reads when the program ends.
REST = 2.0
#: What Ctrl-C means for what a program prints.
_INCOMPLETE = "the output is not complete."
#: Errors of a disk, or another device, to which nothing more can be written.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
#: What PyTorch's errors have where memory is full.
_NO_ROOM = ("DefaultCPUAllocator", "std::bad_alloc", os.strerror(errno.ENOMEM))


def console_program(main: Callable[..., None]) -> Callable[..., None]:
    """Decorator of a program's ``main``: see :func:`end_in_a_line`; messages name its flags.

    The garbage collector leaves what was imported alone (:mod:`.collector`).
    """

    @functools.wraps(main)
    def run(argv: Optional[Sequence[str]] = None) -> None:
        if sys.stderr is None:  # it is closed, and nobody reads what is told
            sys.stderr = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w")
        end_in_a_line()
        freeze_imports()
        token = FLAGS_ARE_TYPED.set(True)
        try:
            main(argv)
        except (ArithmeticError, LookupError, RuntimeError, ValueError) as error:
            # What is told when objects go, such as statistics, is told before the error is.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            FLAGS_ARE_TYPED.reset(token)

    return run


def end_in_a_line(interrupted: str = _INCOMPLETE, at_once: bool = True) -> None:
    """Let Ctrl-C, a reader that has gone, and a full disk or memory end this process in a line.

    Ctrl-C ends it with a line and :data:`STATUS`. Where nobody reads the output any more, it ends
    without a word, with :data:`PIPE_STATUS`. Where the output or memory has no room, it ends with a
    line and 1. Nothing changes where others handle errors.

    Args:
        interrupted: what Ctrl-C means for the output.
        at_once: whether the process then ends without what others do at its end, such as to write
            the rest of a log. Else Python ends it, which may take a second.
    """
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = functools.partial(_end, interrupted, at_once)
        atexit.register(_let_readers_rest)
        atexit.register(_flush)
    end_as_usual()


def _end(
    interrupted: str,
    at_once: bool,
    kind: Type[BaseException],
    error: BaseException,
    trace: Optional[TracebackType],
) -> None:
    """Report an error that nobody has handled. Files that ``with`` opened are closed by now."""
    ending = _ending(error, interrupted)
    if ending is None:
        traceback.clear_frames(trace)  # see console_program
        sys.__excepthook__(kind, error, trace)
        return
    for child in multiprocessing.active_children():  # they read data
        child.terminate()
    if at_once:
        _leave(*ending)
    _tell(ending[1])


def _ending(error: BaseException, interrupted: str) -> Optional[Tuple[int, str]]:
    """The status and the line with which an error ends the process; None: a traceback."""
    if isinstance(error, KeyboardInterrupt):
        return STATUS, f"\nInterrupted: {interrupted}\n"
    if isinstance(error, BrokenPipeError) and _is_unread():
        return PIPE_STATUS, ""
    if isinstance(error, OSError) and error.errno in _FULL:
        what = "The output" if error.filename is None else error.filename
        return 1, f"{what} cannot be written ({error.strerror}), and is not complete. Make room.\n"
    if _is_full_memory(error):
        return 1, (
            f"There was not enough memory ({_first_line(error)}): {interrupted} Take less at once, "
            "such as by smaller batches, or let this process have more memory.\n"
        )
    return None


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _is_full_memory(error: BaseException) -> bool:
    """Whether memory was full, of this process or of a GPU."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    # PyTorch has no class of its own where the memory of a CPU is full.
    of_cpu = isinstance(error, RuntimeError) and any(each in str(error) for each in _NO_ROOM)
    return of_cpu or isinstance(error, (MemoryError, torch.cuda.OutOfMemoryError))


def _leave(status: int, line: str) -> None:
    """End the process with a line on the standard error."""
    _tell(line)
    # Python would take a second or more to give back the memory of a large model, piece by piece.
    os._exit(status)


def _tell(line: str) -> None:
    """Write a line on the standard error, behind all output."""
    for stream, text in ((sys.stdout, ""), (sys.stderr, line)):
        with contextlib.suppress(AttributeError, OSError):  # it may be closed
            stream.write(text)
            stream.flush()


def _is_unread() -> bool:
    """Whether the standard output is a pipe that nobody reads any more."""
    # Not every system has poll, and not every output has a number.
    with contextlib.suppress(AttributeError, OSError, ValueError):
        poll = select.poll()
        poll.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
    return False


def _let_readers_rest() -> None:
    """Let fairseq's threads that read batches ahead come to rest.

    Python ends them where they are when it ends. Inside of PyTorch's operators, that would abort
    the process.
    """
    readers = [each for each in threading.enumerate() if isinstance(each, BackgroundConsumer)]
    queues = [each._queue for each in readers]
    for queue in queues:
        queue.maxsize = 1  # The thread waits for room, with its next batch but one at the latest.
    end = time.monotonic() + REST
    for reader, queue in zip(readers, queues):
        while reader.is_alive() and not queue.not_full._waiters and time.monotonic() < end:
            time.sleep(0.001)


def _flush() -> None:
    """Python would tell a broken pipe or a full disk when it flushes the rest at the end."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        _leave(*(_ending(error, _INCOMPLETE) or (1, f"The output cannot be written: {error}.\n")))
