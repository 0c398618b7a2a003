"""Text files, plain or packed, a line at a time."""

import codecs
import contextlib
import gzip
import logging
import sys
import zlib
from typing import IO, Any, Iterator

from .errors import PluginError

logger = logging.getLogger(__name__)

#: Editors of Windows write UTF-16, and mark the beginning of the text so.
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file of bytes to read, unpacked where its name ends in ``.gz``; ``-``: standard input.

    Raises:
        PluginError: the file is missing or damaged.
    """
    if path == "-":
        if sys.stdin is None:
            raise PluginError("The standard input is closed: open it, or name a file.")
        yield sys.stdin.buffer
        return
    try:
        with _open(path) as file:
            yield file
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise PluginError(
            f"{path} is truncated, or is no gzip file in spite of its name. Copy it again."
        ) from None


def _open(path: str) -> Any:
    """A file of bytes; PluginError tells why it cannot be opened."""
    try:
        return gzip.open(path, "rb") if path.endswith(".gz") else open(path, "rb")
    except FileNotFoundError:
        raise PluginError(f"File not found: {path}. Check the path.") from None
    except IsADirectoryError:
        raise PluginError(f"{path} is a folder, not a file. Name a file inside it.") from None
    except PermissionError:
        raise PluginError(
            f"{path} may not be read. Check the permissions of the file and its folder."
        ) from None
    except OSError as error:
        raise PluginError(f"{path} cannot be opened ({error.strerror}). Check the path.") from error


def read_lines(path: str, replace: bool = False) -> Iterator[str]:
    r"""The lines of a UTF-8 file (see :func:`opened`) without their ends.

    Lines end in ``\n`` or ``\r\n`` only, so that other separators of Unicode do not shift them.
    A final line end starts no line. A mark at the beginning of the text is left out.

    Args:
        path: of the file.
        replace: whether U+FFFD replaces what is not UTF-8, with a warning that names the line;
            else such a line is refused. UTF-16 is refused in any case.

    Raises:
        PluginError: the file is missing, damaged, or not UTF-8.
    """
    name = "standard input" if path == "-" else path
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            line = without_mark(line, number)
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                is_utf16 = number == 1 and line.startswith(_UTF16)
                if is_utf16 or not replace:
                    raise PluginError(
                        f"Line {number:,} of {name} is not UTF-8. {cure(line, number)}"
                    ) from None
                logger.warning(told_replaced(f"line {number:,} of {name}", line, number))
                text = line.decode("utf-8", errors="replace")
            yield text.removesuffix("\n").removesuffix("\r")


def without_mark(line: bytes, number: int) -> bytes:
    """A line without the mark that editors of Windows write at the beginning of UTF-8.

    Args:
        line: which may begin with it.
        number: its number in the text, from 1. The bytes are text in other lines.
    """
    return line.removeprefix(codecs.BOM_UTF8) if number == 1 else line


def told_replaced(name: str, line: bytes, number: int) -> str:
    """A warning that U+FFFD replaces bytes of a line; see :func:`cure`."""
    told = "it is not UTF-8, and U+FFFD replaces what cannot be read."
    return f"{name}: {told} {cure(line, number)}"


def cure(line: bytes, number: int) -> str:
    """What makes a text UTF-8, as a sentence.

    Args:
        line: one that is not.
        number: its number in the text, from 1.
    """
    if number == 1 and line.startswith(_UTF16):
        return "It begins as UTF-16 does. Convert it with iconv -f UTF-16 -t UTF-8."
    return "Convert it (for instance with iconv)."
