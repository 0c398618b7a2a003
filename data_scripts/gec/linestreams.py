"""Line files as streams, of which never more than a few lines are in memory."""

import gzip
import os
import sys
import zlib
from typing import IO, Callable, Iterable, Iterator

from specdec_plugin.errors import PluginError

# The programs of the folder above share their modules with those of this one.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from textfiles import atomic_writer, clean

__all__ = ["STDIN", "atomic_writer", "clean", "rewrite", "stream_lines"]

#: The name that stands for standard input.
STDIN = "-"


def stream_lines(path: str) -> Iterator[str]:
    r"""The lines of a UTF-8 file, plain or ``.gz`` (or of standard input), one at a time.

    Only ``\n`` ends a line, whatever else another program would split it on.
    """
    try:
        if path == STDIN:
            yield from _decoded(sys.stdin.buffer, "standard input")
        else:
            with _open(path) as lines:
                yield from _decoded(lines, path)
    except FileNotFoundError:
        raise PluginError(f"Text file not found: {path}. Check the path.") from None
    except IsADirectoryError:
        raise PluginError(f"{path} is a folder, not a file. Name a file inside it.") from None
    except (gzip.BadGzipFile, EOFError, zlib.error):
        raise PluginError(
            f"{path} is truncated, or is no gzip file in spite of its name. Copy it again."
        ) from None


def rewrite(change: Callable[[str], str]) -> None:
    """Write each line of standard input to standard output, changed; a line for every line."""
    for line in stream_lines(STDIN):
        sys.stdout.buffer.write((change(line) + "\n").encode("utf-8"))
    sys.stdout.buffer.flush()


def _open(path: str) -> IO[bytes]:
    if path.endswith(".gz"):
        return gzip.open(path, "rb")
    return open(path, "rb")


def _decoded(lines: Iterable[bytes], name: str) -> Iterator[str]:
    for number, line in enumerate(lines, start=1):
        try:
            yield line.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            raise PluginError(
                f"Line {number} of {name} is not UTF-8. Convert the text (for instance with iconv)."
            ) from None
