"""``specdec-score``: how probable given translations are, with a score for each line."""

import argparse
from typing import Optional, Sequence

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

EXAMPLE = """examples:
  specdec-score checkpoints/pydocs-en-es input.en output.es >scores
  specdec-score nllb -s eng_Latn -t deu_Latn corpus.en.gz corpus.de.gz --json
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-score",
        description="Score translations with a folder of specdec-pack or specdec-import. Each line "
        "gets the mean log-probability (to the base e) of the tokens of its translation.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", help="has a specdec.json")
    parser.add_argument("source", help="a text, also one that is packed by gzip; -: standard input")
    parser.add_argument("target", help="has the translation of each line")
    add_directions(parser)
    parser.add_argument(
        "--batch-size",
        type=int,
        default=BATCH,
        help="sentences that are scored together (default: %(default)s)",
    )
    parser.add_argument(
        "--json", action="store_true", help="write an object for each line, with a score a token"
    )
    add_output(parser)
    return parser


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    if options.batch_size < 1:
        raise PluginError(f"--batch-size {options.batch_size}: give at least 1.")
    if options.source == options.target:
        raise PluginError(f"The source and the target are both {options.source}: name two texts.")
    check_files(options.output, [options.source, options.target])
    total = lines_of(options.source)
    session = quietly_opened(options.folder, options.device)
    session = directed(session, session, options)
    texts = {"The source": options.source, "The target": options.target}
    pairs = side_by_side({name: read_lines(path, replace=True) for name, path in texts.items()})
    with (
        written(options.output) as file,
        Progress(total=total, unit="line", disable=is_hidden(options)) as bar,
    ):
        for found in session.score_iter(pairs, options.batch_size):
            line = as_object(found) if options.json else f"{found.score:.4f}"
            file.write(f"{line}\n".encode())
            bar.add(1, len(found.tokens))


if __name__ == "__main__":
    main()
