"""Options and values on a command line, such as ``--option max_len_b=100``."""

import ast
from typing import Any, Tuple

from ..api import FAIRSEQ
from ..methods.registry import names


def option(text: str) -> Tuple[str, Any]:
    """An option's name and its value, which is a number, a switch or a text."""
    given, value = name(text)
    try:
        return given, ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return given, value


def name(text: str) -> Tuple[str, str]:
    """A name and what it is called, both of them texts."""
    given, equals, value = text.partition("=")
    if not (given and equals and value):
        raise ValueError(text)
    return given, value


# argparse calls a value that is refused an "invalid …", by the name of the function.
option.__name__ = name.__name__ = "NAME=VALUE"


def add_decoding(parser: Any, default: Any, told: str) -> None:
    """Add ``--decoding`` and ``--option`` to a program's parser.

    Args:
        default: of ``--decoding``.
        told: the default, for the help.
    """
    choices = [*names(), FAIRSEQ]
    parser.add_argument("--decoding", choices=choices, default=default, help=f"(default: {told})")
    parser.add_argument(
        "--option",
        action="append",
        type=option,
        default=[],
        metavar="NAME=VALUE",
        help="of decoding or of the search, as in Python, such as max_len_b=100; may be repeated",
    )
