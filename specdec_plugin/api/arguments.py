"""What calls from Python are given is checked here: lines of text, and counts."""

from numbers import Integral
from typing import Any, Iterable, List, Sequence, Tuple, TypeVar

from ..errors import PluginError

T = TypeVar("T")

#: The greatest number of anything.
_MOST = 2**31 - 1


def check_lines(lines: Any) -> None:
    """Refuse a single text, and what has no lines."""
    if isinstance(lines, str):
        raise PluginError("Give a list of lines, such as ['The file is closed.'], not a text.")
    if not isinstance(lines, Iterable):
        raise PluginError(f"lines={repr(lines)[:60]}: give a list of texts.")


def same_number(lines: Iterable[str], others: Iterable[T], name: str) -> Tuple[List[str], List[T]]:
    """Lists of lines and of what each has.

    Raises:
        PluginError: they have different lengths, or one is a single text.
    """
    for each in (lines, others):
        check_lines(each)
    found, beside = list(lines), list(others)
    if len(found) != len(beside):
        raise PluginError(
            f"There are {len(beside)} {name} for {len(found)} lines: give one for each line, which "
            "may be empty."
        )
    return found, beside


def pair(given: Any) -> Tuple[str, str]:
    """A line and its translation.

    Raises:
        PluginError: it is something else.
    """
    if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != 2:
        raise PluginError(
            f"{repr(given)[:60]} is no pair. Give pairs such as ('A line.', 'Its translation.')."
        )
    return given[0], given[1]


def check_pairs(pairs: Any) -> None:
    """Refuse what has no pairs."""
    if not isinstance(pairs, Iterable):
        pair(pairs)  # tells what to give


def check_text(line: Any) -> None:
    """Refuse what is no line of text, and half characters, which no subword model reads."""
    check_type(line, str)
    try:
        line.encode("utf-8")
    except UnicodeEncodeError:
        raise PluginError(
            f"The line {line[:40]!r} has half of a surrogate pair, as what was not UTF-8 may leave "
            "behind. Read the text with its own encoding, or with errors='replace'."
        ) from None


def check_type(line: Any, *types: type) -> None:
    """Refuse a line that is of none of these types."""
    if not isinstance(line, types):
        raise PluginError(
            f"{repr(line)[:60]} is no line of text. Give lines such as 'The file is closed.'; "
            "decode bytes first."
        )


def without_end(line: Any) -> str:
    """A line of text without its end."""
    check_text(line)
    return str(line).removesuffix("\n").removesuffix("\r")


def check_counts(least: int = 1, **counts: Any) -> None:
    """Refuse what is no whole number, or less than ``least``, by the name of its argument."""
    for name, value in counts.items():
        if not isinstance(value, Integral):
            raise PluginError(f"{name} {value!r}: give a whole number.")
        if value < least:
            raise PluginError(f"{name} {value}: give at least {least}.")
        if int(value) > _MOST:
            raise PluginError(f"{name} {value}: give at most {_MOST}.")
