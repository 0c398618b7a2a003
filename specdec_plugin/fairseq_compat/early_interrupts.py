"""Lets Ctrl-C end a console program of ours at once while it imports PyTorch and fairseq.

That takes seconds, and Python would print a traceback of the import. So this module is imported
before them. :mod:`.interrupts` takes over when the program begins.
"""

import os
import signal
import sys
from types import FrameType
from typing import Optional

#: Of a program that SIGINT ended, as shells tell it.
STATUS = 130
#: How the names of our console programs begin.
_PROGRAMS = "specdec-"


def end_as_usual() -> None:
    """Let Ctrl-C raise an error again."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: Optional[FrameType]) -> None:
    # An error may end an import otherwise: some libraries catch all that their imports raise.
    os._exit(STATUS)


def _is_ours() -> bool:
    """Whether this process is a console program of ours, and no process that one has started."""
    program = getattr(sys.modules["__main__"], "__file__", None) or ""
    return os.path.basename(program).startswith(_PROGRAMS)


if _is_ours() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _leave)
