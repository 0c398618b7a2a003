"""Files and folders that programs write: checked before the work, and whole or absent after it.

Where processes would write the same parts, one of them does so at a time.
"""

import contextlib
import errno
import fcntl
import glob
import itertools
import logging
import os
import secrets
import time
from typing import Iterator, Optional, Tuple

from .errors import PluginError

logger = logging.getLogger(__name__)

#: Errors of systems that lock no files.
_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)
#: Seconds for which nobody but its writer removes an unfinished file: it may not be locked yet.
_YOUNG = 60.0


@contextlib.contextmanager
def written_whole(path: str, mode: Optional[int] = None) -> Iterator[str]:
    """Let a file appear under its name only when it is whole.

    After an error or a kill, what stood at ``path`` before still does. Several processes may write
    the same file: each writes one of its own, and the last one that is whole stays. What kills have
    left is removed.

    Args:
        path: of the file; its folder is there. A link leads to the file that is written.
        mode: who may read and write it, from the first byte on. None: those who may the file in
            whose place it comes; without one, umask tells.

    Yields:
        the name of an empty file in the same folder, which ends in ``.tmp``. Write there. After an
        error it is removed.

    Raises:
        PluginError: it is a device or a pipe, in whose place a file would come.
    """
    check_replaceable(path)
    path = os.path.realpath(path)
    _remove_abandoned(path)
    before = None if mode is not None else _mode_of(path)
    unfinished, held = _new_file(path, mode, before)
    try:
        yield unfinished
        with open(unfinished, "rb") as file:
            # Or else the name could survive a loss of power, and the rest not.
            os.fsync(file.fileno())
        if before is not None:
            with contextlib.suppress(OSError):  # some systems have no modes
                os.chmod(unfinished, before)
        os.replace(unfinished, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.remove(unfinished)
        raise
    finally:
        os.close(held)


def write_text(path: str, text: str) -> None:
    """Write a text whole or not at all, in UTF-8.

    Raises:
        PluginError: it cannot be written.
    """
    with told_if_unwritable(path), written_whole(path) as unfinished:
        with open(unfinished, "w", encoding="utf-8") as file:
            file.write(text)


def check_replaceable(path: str) -> None:
    """Refuse a device or a pipe, whose place a whole file would take; PluginError names it."""
    if is_stream(path):
        raise PluginError(f"{path} is not a file, and may not become one. Name another.")


def is_stream(path: str) -> bool:
    """Whether it is a pipe or a device, which may give what it holds only once."""
    return os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path)


def same_file(*paths: str) -> bool:
    """Whether two of these names are of one file, which may not be there yet."""
    return any(_same(one, other) for one, other in itertools.combinations(paths, 2))


def _same(one: str, other: str) -> bool:
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def _mode_of(path: str) -> Optional[int]:
    """Who may read, write and run a file; None: there is none."""
    try:
        return os.stat(path).st_mode & 0o777
    except FileNotFoundError:
        return None


def _new_file(path: str, mode: Optional[int], before: Optional[int]) -> Tuple[str, int]:
    """Make an empty file beside ``path``, under a name that nobody else has.

    Args:
        path: of the file.
        mode: of the new one; None: what umask leaves of that of the file before, which we write.
        before: the mode of that file; None: there is none.

    Returns:
        the name, and a descriptor by which the file is locked until it is closed.
    """
    # tempfile.mkstemp would give it another mode, and to ask for umask changes it for all threads.
    name = f"{path}.{secrets.token_hex(8)}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    most = 0o666 if before is None else before & 0o666 | 0o600
    file = os.open(name, flags, most if mode is None else 0o600)
    if mode is not None:
        os.fchmod(file, mode)
    with contextlib.suppress(OSError):  # some systems lock nothing
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return name, file


def _remove_abandoned(path: str) -> None:
    """Remove the unfinished files of processes that were killed."""
    for name in glob.glob(f"{glob.escape(path)}.{'[0-9a-f]' * 16}.tmp"):
        with contextlib.suppress(OSError):  # It is locked, or somebody else has removed it.
            if time.time() - os.stat(name).st_mtime < _YOUNG:
                continue
            file = os.open(name, os.O_RDWR)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.remove(name)
            finally:
                os.close(file)


@contextlib.contextmanager
def alone(folder: str, doing: str) -> Iterator[None]:
    """Be the only process that does something in a folder, until the end in whatever way.

    Args:
        folder: where the lock is; it is made where it is missing.
        doing: what the process does, as the message has it: ``merged``.

    Raises:
        PluginError: another process does it now, or the folder cannot be written.
    """
    path = os.path.join(folder, ".lock")
    with told_if_unwritable(path):
        os.makedirs(folder, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        hold(descriptor, folder, doing)
        yield
    finally:
        os.close(descriptor)


def hold(descriptor: int, path: str, doing: str, wait: bool = False) -> None:
    """Keep others from a file until it is closed, or until the process ends in whatever way.

    Args:
        descriptor: of the file.
        path: what is worked on, as the message has it.
        doing: what the process does, likewise: ``decoded``.
        wait: for another process that holds it.

    Raises:
        PluginError: another process holds it, or the system's locks fail.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        raise PluginError(
            f"{path} is being {doing} by another process. Wait for it or end it first."
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise _unwritable(path, error.strerror or str(error)) from error
        logger.warning(
            f"{path} cannot be locked here ({error.strerror}), so that nothing keeps other "
            "processes from it. Let one process at a time work there."
        )


@contextlib.contextmanager
def told_if_unwritable(path: str) -> Iterator[None]:
    """Turn the system's errors while ``path`` is written into one sentence."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error.strerror or str(error)) from error


def check_output(path: str, folder: bool = False, option: str = "--output") -> None:
    """Refuse what could not be written, before anything is computed for it. Nothing is made.

    Args:
        path: what will be written; missing folders above it will be made.
        folder: whether it is a folder.
        option: that names it.

    Raises:
        PluginError: it is of the other kind, is below a file, or may not be written.
    """
    if os.path.isdir(path) and not folder:
        raise PluginError(f"{option} {path} is a folder. Name a file.")
    if os.path.exists(path) and folder and not os.path.isdir(path):
        raise PluginError(f"{option} {path} is a file. Name a folder.")
    above = os.path.abspath(path if folder else os.path.dirname(path) or ".")
    while not os.path.exists(above):
        above = os.path.dirname(above)
    if not os.path.isdir(above):
        raise _unwritable(f"{option} {path}", os.strerror(errno.ENOTDIR))
    if not os.access(above, os.W_OK | os.X_OK):
        raise _unwritable(f"{option} {path}", os.strerror(errno.EACCES))


def _unwritable(what: str, reason: str) -> PluginError:
    return PluginError(f"{what} cannot be written ({reason}). Choose another place.")
