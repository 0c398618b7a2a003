"""``specdec-translate``: a text in, its translation out, with a line for each line."""

import argparse
import sys
from collections import deque
from typing import Any, Deque, Dict, Iterable, Iterator, List, Optional, Sequence

from ..api import Hypothesis, Translator
from ..errors import PluginError
from ..fairseq_compat.interrupts import console_program
from ..progress import Progress
from ..textfiles import read_lines
from .line_by_line import (
    BATCH,
    add_directions,
    add_output,
    as_object,
    check_files,
    directed,
    is_hidden,
    lines_of,
    quietly_opened,
    side_by_side,
    written,
)
from .option_values import add_decoding

EXAMPLE = """examples:
  specdec-translate checkpoints/pydocs-en-es <input.en >output.es
  specdec-translate nllb -s eng_Latn -t deu_Latn --input input.en.gz --output output.de
  specdec-translate packed --decoding beam --option beam=4 --nbest 4 --json <input.en
"""


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
    parser.add_argument(
        "--prefixes",
        metavar="FILE",
        help="has a line for each line: how its translation begins, or nothing",
    )
    parser.add_argument(
        "--phrases",
        metavar="FILE",
        help="has a line for each line: phrases that its translation contains, with tabs between "
        "them, or nothing",
    )
    add_directions(parser)
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
    add_output(parser)
    add_decoding(parser, None, "the folder's")
    return parser


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    _check(options)
    total = lines_of(options.input)
    translator = _translator(options)
    size = options.batch_size
    if size is None:
        on_terminal = options.input == "-" and sys.stdin is not None and sys.stdin.isatty()
        size = 1 if on_terminal else BATCH
    paths = options.prefixes, options.phrases
    beside = [None if path is None else read_lines(path, replace=True) for path in paths]
    with (
        written(options.output) as file,
        Progress(total=total, unit="line", disable=is_hidden(options)) as bar,
    ):
        lines = read_lines(options.input, replace=True)
        for found in hypotheses(translator, lines, size, options.nbest, *beside):
            file.write((_line(found, options.json) + "\n").encode())
            if size == 1:
                file.flush()
            bar.add(1, 0 if found is None else len(found.tokens))


def _check(options: argparse.Namespace) -> None:
    """Refuse options that contradict each other, before anything is loaded."""
    if options.nbest > 1 and not options.json:
        raise PluginError(f"--nbest {options.nbest} has no effect on lines of text: add --json.")
    if options.batch_size is not None and options.batch_size < 1:
        raise PluginError(f"--batch-size {options.batch_size}: give at least 1.")
    if options.phrases is None and "constraints" in dict(options.option):
        raise PluginError("--option constraints has no effect without phrases: add --phrases.")
    beside = {"--prefixes": options.prefixes, "--phrases": options.phrases}
    given = {flag: path for flag, path in beside.items() if path is not None}
    check_files(options.output, [options.input, *given.values()])
    for flag, path in given.items():
        if path == options.input:
            raise PluginError(f"{flag} {path} is the input: name another file.")
    if len({*given.values()}) < len(given):
        raise PluginError(f"--prefixes and --phrases are both {options.phrases}: name two files.")


def _translator(options: argparse.Namespace) -> Translator:
    """That of the folder, for the direction that is asked for."""
    session = quietly_opened(options.folder, options.device)
    decoding, flags = options.decoding or session.decoding, dict(options.option)
    if options.phrases is not None:
        flags = session.for_phrases(decoding, flags)
    translator = directed(session.translator(decoding, **flags), session, options)
    if not options.json:
        translator.forgo_scores()
    return translator


def hypotheses(
    translator: Translator,
    lines: Iterable[str],
    batch_size: int,
    nbest: int = 1,
    prefixes: Optional[Iterable[str]] = None,
    phrases: Optional[Iterable[str]] = None,
) -> Iterator[Optional[Hypothesis]]:
    """A hypothesis for each line, in their order; None for a blank line.

    Args:
        translator: of a folder.
        lines: are read as they are needed.
        batch_size, nbest: as for :meth:`.Translator.translate_iter`.
        prefixes: likewise; that of a blank line is not read.
        phrases: those of each line, with tabs between them; likewise.

    Raises:
        PluginError: there is another number of prefixes or phrases than of lines.
    """
    given = {"--prefixes": prefixes, "--phrases": phrases}
    beside = {flag: text for flag, text in given.items() if text is not None}
    blank: Deque[bool] = deque()
    waiting: Dict[str, Deque[str]] = {flag: deque() for flag in beside}

    def read() -> Iterator[str]:
        for line, *others in side_by_side({"--input": lines, **beside}):
            blank.append(translator.session.is_blank(line))
            if not blank[-1]:
                for queue, other in zip(waiting.values(), others):
                    queue.append(other)
                yield line

    left = {flag: _drained(queue) for flag, queue in waiting.items()}
    begin, within = left.get("--prefixes"), left.get("--phrases")
    wanted: Dict[str, Any] = {"prefixes": begin, "phrases": within and map(_phrases, within)}
    # A sentence alone waits for no other.
    ahead = 1 if batch_size == 1 else 0
    for found in translator.translate_iter(read(), batch_size, nbest, ahead=ahead, **wanted):
        while blank.popleft():
            yield None
        yield found
    yield from (None for _ in blank)


def _drained(queue: Deque[str]) -> Iterator[str]:
    while queue:
        yield queue.popleft()


def _phrases(line: str) -> List[str]:
    """The phrases of a line that has tabs between them."""
    return [phrase for phrase in line.split("\t") if phrase.strip()]


def _line(found: Optional[Hypothesis], as_json: bool) -> str:
    if as_json:
        return as_object(found)
    text = "" if found is None else found.text
    # A model may have a piece for the end of a line, which would shift all others.
    return text.replace("\r", " ").replace("\n", " ")


if __name__ == "__main__":
    main()
