"""Line files that keep their lines: reading, cleaning, hashing and atomic writing.

A *line* here is what stands between two ``\\n``, and nothing else ends one.
Python's text mode and ``fairseq-preprocess`` also split on a lone ``\\r``, and
``str.splitlines`` on a dozen more characters (U+2028, ``\\x0b``, ``\\x1c`` …),
so raw text is cleaned of them before another program counts its lines.
"""

import contextlib
import hashlib
import os
import re
import unicodedata
from typing import IO, Iterable, Iterator, List, Sequence, Tuple

from specdec_plugin import textfiles
from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import told_if_unwritable, written_whole

#: Ranges of lines in a message.
MOST_RANGES = 5
#: No abbreviation of single letters stands before it.
_BETWEEN_SENTENCES = re.compile(r"(?<=\w\w[.?!]) (?=[A-Z])")


def find_text(path: str) -> str:
    """``path`` itself, or ``path.gz`` when only that exists.

    Raises:
        PluginError: neither exists.
    """
    for candidate in (path, path + ".gz"):
        if os.path.isfile(candidate):
            return candidate
    raise PluginError(f"Text file not found: {path} (nor {path}.gz). Check the path.")


def read_bytes(path: str) -> bytes:
    """The content of a file, unpacked where its name ends in ``.gz``."""
    with textfiles.opened(path) as file:
        return file.read()


def read_lines(path: str) -> List[str]:
    """All lines of a UTF-8 file; see :func:`specdec_plugin.textfiles.read_lines`."""
    return list(textfiles.read_lines(path))


def read_piece_lines(path: str) -> List[str]:
    r"""The lines of a file of subword pieces, which must not hold a lone ``\r``."""
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        if "\r" in line:
            raise PluginError(
                f"Line {number} of {path} holds a lone carriage return, on which "
                "fairseq-preprocess splits it in two. Make the pieces with prepare_subwords.py."
            )
    return lines


def clean(line: str) -> str:
    """One line of raw text as words with single spaces, without control characters.

    Every white space that Unicode knows, line separators included, and every
    control character, NUL included, separates words.

    >>> clean("two\\u2028lines\\x00 and\\ta tab ")
    'two lines and a tab'
    """
    if not line.isprintable():
        line = "".join(" " if unicodedata.category(c) == "Cc" else c for c in line)
    return " ".join(line.split())


def split_sentences(line: str) -> List[str]:
    """The sentences of a line, which is cut where one ends and a capital follows.

    >>> split_sentences("It is late. Go home, e.g. Now.")
    ['It is late.', 'Go home, e.g. Now.']
    """
    return _BETWEEN_SENTENCES.split(line)


def check_parallel(source: str, target: str, source_lines: int, target_lines: int) -> None:
    """Stop when two files, such as the sides of a corpus, have different numbers of lines."""
    if source_lines != target_lines:
        raise PluginError(
            f"{source} has {source_lines:,} lines and {target} has {target_lines:,}: they do not "
            "belong together line by line. Make them line-aligned."
        )


def sha256(content: bytes) -> str:
    """Hexadecimal SHA-256."""
    return hashlib.sha256(content).hexdigest()


def sha256_of_file(path: str) -> str:
    """SHA-256 of a file's content (unpacked), read in one piece."""
    return sha256(read_bytes(path))


@contextlib.contextmanager
def atomic_writer(path: str) -> Iterator[IO[str]]:
    r"""A text file that appears under its name only when it is whole.

    See :func:`specdec_plugin.outputs.written_whole`.

    Raises:
        PluginError: it cannot be written, or the disk is full.
    """
    with told_if_unwritable(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with (
            written_whole(path) as unfinished,
            open(unfinished, "w", encoding="utf-8", newline="\n") as handle,
        ):
            yield handle


def write_lines(path: str, lines: Iterable[str]) -> int:
    """Write the lines atomically; returns how many they are."""
    count = 0
    with atomic_writer(path) as handle:
        for line in lines:
            handle.write(line + "\n")
            count += 1
    return count


def write_text(path: str, text: str) -> None:
    """Write a text atomically."""
    with atomic_writer(path) as handle:
        handle.write(text)


def write_pairs(
    prefix: str, pairs: Sequence[Tuple[str, str]], sides: Sequence[str] = ("src", "tgt")
) -> int:
    """A file for each side of the pairs, the second one last; returns how many pairs they are.

    Args:
        prefix: of both files.
        pairs: a line each.
        sides: endings of the files.
    """
    for place, side in enumerate(sides):
        write_lines(f"{prefix}.{side}", (pair[place] for pair in pairs))
    return len(pairs)


def line_ranges(numbers: Iterable[int]) -> str:
    """Line numbers (from 0) told from 1 as ranges, the first few of them.

    >>> line_ranges([0, 1, 2, 7])
    '1-3, 8'
    """
    ranges: List[Tuple[int, int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    told = [f"{a + 1}" if a == b else f"{a + 1}-{b + 1}" for a, b in ranges[:MOST_RANGES]]
    more = len(ranges) - MOST_RANGES
    return ", ".join(told) + (f" and {more} more ranges" if more > 0 else "")
