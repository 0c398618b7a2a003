"""Line files as streams, of which never more than a few lines are in memory."""

import argparse
import os
import sys
from typing import Callable

from specdec_plugin.fairseq_compat.interrupts import end_in_a_line
from specdec_plugin.progress import Progress
from specdec_plugin.textfiles import read_lines

# The programs of the folder above share their modules with those of this one.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from textfiles import atomic_writer, clean

__all__ = ["STDIN", "add_suffixes", "atomic_writer", "clean", "read_lines", "rewrite"]

#: The name that stands for standard input.
STDIN = "-"


def add_suffixes(parser: argparse.ArgumentParser, sides: str) -> None:
    """Add ``--suffixes``, the ends of the names of two line-aligned files with these ``sides``."""
    parser.add_argument(
        "--suffixes",
        nargs=2,
        default=["err", "cor"],
        metavar=("WRONG", "RIGHT"),
        help=f"of the files with {sides} (default err cor)",
    )


def rewrite(change: Callable[[str], str]) -> None:
    """Write each line of standard input to standard output, changed; a line for every line.

    The program ends in a line where nobody reads the output, or where it has no room.
    """
    end_in_a_line()
    for line in Progress(read_lines(STDIN), unit="line"):
        sys.stdout.buffer.write((change(line) + "\n").encode("utf-8"))
    sys.stdout.buffer.flush()
