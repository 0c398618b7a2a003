"""``specdec-translate``: a text in, its translation out, with a line for each line."""

import argparse
import contextlib
import json
import logging
import os
import sys
from collections import deque
from typing import IO, Deque, Iterable, Iterator, Optional, Sequence

from ..api import Hypothesis, Translator, open_folder
from ..errors import PluginError
from ..fairseq_compat.interrupts import console_program
from ..folder import read_folder
from ..outputs import check_output, told_if_unwritable
from ..progress import Progress
from ..textfiles import read_lines
from .option_values import add_decoding

EXAMPLE = """examples:
  specdec-translate checkpoints/pydocs-en-es <input.en >output.es
  specdec-translate nllb -s eng_Latn -t deu_Latn --input input.en.gz --output output.de
  specdec-translate packed --decoding beam --option beam=4 --nbest 4 --json <input.en
"""
#: Sentences that are decoded together, where nobody waits for each.
BATCH = 512


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-translate",
        description="Translate a text with a folder of specdec-pack or specdec-import. Each line "
        "is a sentence, and gives a line. Blank lines stay blank.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", help="has a specdec.json")
    parser.add_argument(
        "--input", default="-", help="a text, also one that is packed by gzip (default: %(default)s"
        ", the standard input)",
    )  # fmt: skip
    parser.add_argument("--output", help="is written anew (default: the standard output)")
    parser.add_argument(
        "--source-lang", "-s", help="of a multilingual model (default: the folder's)"
    )
    parser.add_argument("--target-lang", "-t", help="likewise")
    parser.add_argument(
        "--batch-size", type=int, help="sentences that are decoded together; with 1, each is "
        f"translated when it is read (default: {BATCH}, and 1 on a terminal)",
    )  # fmt: skip
    parser.add_argument(
        "--json", action="store_true", help="write an object for each line, with scores and pieces"
    )
    parser.add_argument(
        "--nbest", type=int, default=1, help="hypotheses in each object (default: %(default)s)"
    )
    parser.add_argument("--device", help="for example cuda (default: the CPU)")
    parser.add_argument("--no-progress-bar", action="store_true", help="show no progress")
    add_decoding(parser, None, "the folder's")
    return parser


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    if options.nbest > 1 and not options.json:
        raise PluginError(f"--nbest {options.nbest} has no effect on lines of text: add --json.")
    if options.batch_size is not None and options.batch_size < 1:
        raise PluginError(f"--batch-size {options.batch_size}: give at least 1.")
    _check_output(options)
    for each in ("fairseq", "specdec_plugin"):
        logging.getLogger(each).setLevel(logging.WARNING)
    total = _lines_of(options.input)
    translator = _translator(options)
    size = options.batch_size
    if size is None:
        size = 1 if options.input == "-" and sys.stdin.isatty() else BATCH
    with _written(options.output) as file:
        lines = read_lines(options.input)
        hidden = options.no_progress_bar or (options.output is None and sys.stdout.isatty())
        with Progress(total=total, unit="line", disable=hidden) as bar:
            for found in hypotheses(translator, lines, size, options.nbest):
                file.write((_line(found, options.json) + "\n").encode())
                if size == 1:
                    file.flush()
                bar.add(1, 0 if found is None else len(found.tokens))


def _check_output(options: argparse.Namespace) -> None:
    """Refuse an output that cannot be written, or that would end the input before it is read."""
    given, output = options.input, options.output
    if output is None:
        return
    check_output(output)
    if os.path.exists(output) and os.path.exists(given) and os.path.samefile(given, output):
        raise PluginError(
            f"--output {output} is the input, which would be lost: name another file."
        )


def _lines_of(path: str) -> Optional[int]:
    """How many lines a file has; None where it can be read once only."""
    return sum(1 for _ in read_lines(path)) if os.path.isfile(path) else None


def _translator(options: argparse.Namespace) -> Translator:
    """That of the folder, for the direction that is asked for."""
    folder = read_folder(options.folder)
    folder.check_raw_text()
    session = open_folder(folder, options.device)
    given = {} if options.decoding is None else {"decoding": options.decoding}
    translator = session.translator(**given, **dict(options.option))
    own = session.direction
    wanted = options.source_lang or own[0], options.target_lang or own[1]
    return translator if wanted == own else translator.between(*wanted)


@contextlib.contextmanager
def _written(path: Optional[str]) -> Iterator[IO[bytes]]:
    """The file of this name; None: the standard output. What is done stays there after an error."""
    if path is None:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    with told_if_unwritable(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with open(path, "wb") as file:
            yield file


def hypotheses(
    translator: Translator, lines: Iterable[str], batch_size: int, nbest: int = 1
) -> Iterator[Optional[Hypothesis]]:
    """A hypothesis for each line, in their order; None for a blank line.

    Args:
        translator: of a folder.
        lines: are read as they are needed.
        batch_size, nbest: as for :meth:`.Translator.translate_iter`.
    """
    blank: Deque[bool] = deque()

    def written() -> Iterator[str]:
        for line in lines:
            blank.append(not line.strip())
            if not blank[-1]:
                yield line

    # A sentence alone waits for no other.
    ahead = 1 if batch_size == 1 else 0
    for found in translator.translate_iter(written(), batch_size, nbest, ahead=ahead):
        while blank.popleft():
            yield None
        yield found
    yield from (None for _ in blank)


def _line(found: Optional[Hypothesis], as_json: bool) -> str:
    if as_json:
        plain = {"text": ""} if found is None else found.plain()
        return json.dumps(plain, ensure_ascii=False)
    text = "" if found is None else found.text
    # A model may have a piece for the end of a line, which would shift all others.
    return text.replace("\r", " ").replace("\n", " ")


if __name__ == "__main__":
    main()
