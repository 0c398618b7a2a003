"""What programs share that read a text, and write a line for each of its lines."""

import argparse
import contextlib
import gzip
import json
import logging
import os
import sys
from itertools import zip_longest
from typing import IO, Any, Iterable, Iterator, Mapping, Optional, Sequence, Tuple, TypeVar

from ..api import Hypothesis, Session, Translator, open_folder
from ..errors import PluginError
from ..folder import read_folder
from ..outputs import check_output, is_stream, same_file, told_if_unwritable
from ..textfiles import opened

Decoder = TypeVar("Decoder", Session, Translator)

#: Sentences that are decoded together, where nobody waits for each.
BATCH = 512


def add_directions(parser: argparse.ArgumentParser) -> None:
    """Add the languages of a multilingual model to a parser."""
    parser.add_argument(
        "--source-lang", "-s", help="of a multilingual model (default: the folder's)"
    )
    parser.add_argument("--target-lang", "-t", help="likewise")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add where lines are written, and how."""
    parser.add_argument(
        "--output", help="is written anew, packed where it ends in .gz (default: the standard "
        "output)",
    )  # fmt: skip
    parser.add_argument("--device", help="for example cuda (default: the CPU)")
    parser.add_argument("--no-progress-bar", action="store_true", help="show no progress")


def check_files(output: Optional[str], inputs: Sequence[str]) -> None:
    """Refuse inputs that are missing, and an output that cannot be written or is an input."""
    for given in inputs:
        if given != "-" and not is_stream(given):
            with opened(given):
                pass
    if output is None:
        return
    check_output(output)
    for given in inputs:
        if given != "-" and same_file(given, output):
            raise PluginError(
                f"--output {output} is the input, which would be lost: name another file."
            )


def lines_of(path: str) -> Optional[int]:
    """How many lines a file has; None where it can be read once only."""
    if not os.path.isfile(path):
        return None
    with opened(path) as file:
        return sum(1 for _ in file)


def quietly_opened(folder: str, device: Optional[str]) -> Session:
    """The session of a folder that takes raw text. Loggers tell warnings alone from now on."""
    for each in ("fairseq", "specdec_plugin"):
        logging.getLogger(each).setLevel(logging.WARNING)
    read = read_folder(folder)
    read.check_raw_text()
    return open_folder(read, device)


def directed(decoder: Decoder, session: Session, options: argparse.Namespace) -> Decoder:
    """A session or its translator, for the direction that :func:`add_directions` asked for."""
    own = session.direction
    wanted = options.source_lang or own[0], options.target_lang or own[1]
    return decoder if wanted == own else decoder.between(*wanted)


def is_hidden(options: argparse.Namespace) -> bool:
    """Whether no progress is shown: it would stand between the lines on a terminal."""
    on_terminal = options.output is None and sys.stdout is not None and sys.stdout.isatty()
    return bool(options.no_progress_bar or on_terminal)


@contextlib.contextmanager
def written(path: Optional[str]) -> Iterator[IO[bytes]]:
    """The file of this name, packed where it ends in ``.gz``; None: the standard output.

    What is done stays there after an error.
    """
    if path is None:
        if sys.stdout is None:
            raise PluginError("The standard output is closed: open it, or give --output.")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with told_if_unwritable(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        opening: Any = gzip.open if path.endswith(".gz") else open
        with opening(path, "wb") as file:
            yield file


def as_object(found: Optional[Hypothesis]) -> str:
    """A hypothesis as a line of JSON; None: of a blank line."""
    plain = {"text": ""} if found is None else found.plain()
    return json.dumps(plain, ensure_ascii=False)


def side_by_side(texts: Mapping[str, Iterable[str]]) -> Iterator[Tuple[str, ...]]:
    """Lines of several texts.

    Args:
        texts: by the name that a message gives each.

    Raises:
        PluginError: one of them ends before another.
    """
    for number, lines in enumerate(zip_longest(*texts.values()), 1):
        for name, line in zip(texts, lines):
            if line is None:
                raise PluginError(
                    f"{name} ends before line {number:,}, and another text does not: give texts "
                    "of as many lines. Lines may be empty."
                )
        yield lines
