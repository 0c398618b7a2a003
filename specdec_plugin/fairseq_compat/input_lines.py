"""What fairseq-interactive reads: every line that ends in a line feed, whatever its bytes are.

fairseq ends in a traceback at a line that is not UTF-8, and starts another line at a lone carriage
return.
"""

import itertools
import logging
import sys
from typing import Iterator, List

from ..textfiles import opened, told_replaced, without_mark

logger = logging.getLogger(__name__)


def read_every_line() -> None:
    """Let fairseq-interactive read by :func:`buffers` (idempotent)."""
    for name in ("fairseq_cli.interactive", "__main__"):
        program = sys.modules.get(name)
        if hasattr(program, "buffered_read"):
            vars(program)["buffered_read"] = buffers


def buffers(path: str, size: int) -> Iterator[List[str]]:
    """The lines of a text, without the space around them.

    Bytes that are not UTF-8 become U+FFFD, with a warning that names the line. A mark at the
    beginning of the text is left out; fairseq takes it for an unknown word.

    Args:
        path: a file; ``-`` for standard input.
        size: how many lines are read before the first of them is translated.

    Yields:
        ``size`` lines, and at last the rest.
    """
    number = 0
    with opened(path) as file:
        while lines := list(itertools.islice(file, max(size, 1))):
            yield [_text(line, number) for number, line in enumerate(lines, number + 1)]
            number += len(lines)


def _text(line: bytes, number: int) -> str:
    line = without_mark(line, number)
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError:
        logger.warning(told_replaced(f"line {number}", line, number))
        return line.decode("utf-8", errors="replace").strip()
