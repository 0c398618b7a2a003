"""Text files, plain or packed, a line at a time."""

import codecs
import contextlib
import gzip
import sys
import zlib
from typing import IO, Any, Iterator

from .errors import PluginError


@contextlib.contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """A file of bytes to read, unpacked where its name ends in ``.gz``; ``-``: standard input.

    Raises:
        PluginError: the file is missing or damaged.
    """
    try:
        if path == "-":
            yield sys.stdin.buffer
            return
        opening: Any = gzip.open if path.endswith(".gz") else open
        with opening(path, "rb") as file:
            yield file
    except FileNotFoundError:
        raise PluginError(f"File not found: {path}. Check the path.") from None
    except IsADirectoryError:
        raise PluginError(f"{path} is a folder, not a file. Name a file inside it.") from None
    except PermissionError:
        raise PluginError(
            f"{path} may not be read. Check the permissions of the file and its folder."
        ) from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise PluginError(
            f"{path} is truncated, or is no gzip file in spite of its name. Copy it again."
        ) from None


def read_lines(path: str) -> Iterator[str]:
    r"""The lines of a UTF-8 file (see :func:`opened`) without their ends.

    Lines end in ``\n`` or ``\r\n`` only, so that other separators of Unicode do not shift them.
    A final line end starts no line.

    Raises:
        PluginError: the file is missing, damaged, or not UTF-8.
    """
    with opened(path) as file:
        for number, line in enumerate(file, start=1):
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                name = "standard input" if path == "-" else path
                raise PluginError(f"Line {number:,} of {name} is not UTF-8. {cure(line)}") from None
            yield text.removesuffix("\n").removesuffix("\r")


def cure(line: bytes) -> str:
    """What makes a text UTF-8, of which this line is not; a sentence."""
    # Editors of Windows write UTF-16, and mark the beginning of the text.
    if line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "It begins as UTF-16 does. Convert it with iconv -f UTF-16 -t UTF-8."
    return "Convert it (for instance with iconv)."
