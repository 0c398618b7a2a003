"""Simplification without a model, to compare with: words dropped from each sentence."""

import argparse
from collections import Counter
from typing import Counter as CounterOf
from typing import List, Mapping, Optional

from simple_text import normalised
from textfiles import read_lines, write_lines

from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import same_file

DESCRIPTION = """\
Write each sentence of SENTENCES without a share of its words: the last ones, or those that are
rarest in --text. Sentences come as simplification_pairs.py writes them. Punctuation marks are words
here: the last words may be some, but the rarest are words with a letter or a figure. Of words that
are equally rare the last ones go first."""

EXAMPLE = """\
example:
  python data_scripts/simplification/shorten.py test.orig --drop rarest --text train.src \\
      --output rarest.hyp"""


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="shorten.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("sentences", metavar="SENTENCES", help="a file with one a line")
    parser.add_argument("--drop", choices=("last", "rarest"), required=True, help="which words")
    parser.add_argument(
        "--share", type=float, default=0.2, metavar="SHARE", help="of the words (default 0.2)"
    )
    parser.add_argument("--text", metavar="FILE", help="whose words are counted, for rarest")
    parser.add_argument("--output", required=True, metavar="FILE", help="to write")
    return parser


def without_last(line: str, share: float) -> str:
    """A sentence without its last words.

    >>> without_last("a b c d e f g h i .", 0.2)
    'a b c d e f g h'
    """
    words = line.split()
    return " ".join(words[: len(words) - int(share * len(words))])


def without_rarest(line: str, share: float, counts: Mapping[str, int]) -> str:
    """A sentence without its rarest words.

    >>> without_rarest("the zinc of the mine .", 0.2, {"the": 9, "of": 5, "mine": 2})
    'the of the mine .'
    """
    words = line.split()
    plain = [position for position, word in enumerate(words) if any(map(str.isalnum, word))]
    rarest = sorted(plain, key=lambda position: (counts.get(words[position], 0), -position))
    dropped = {*rarest[: int(share * len(words))]}
    return " ".join(word for position, word in enumerate(words) if position not in dropped)


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    if not 0 <= args.share < 1:
        raise PluginError(f"--share {args.share:g}: give a share from 0 to less than 1.")
    if (args.drop == "rarest") != bool(args.text):
        raise PluginError("--text is what --drop rarest counts words in. Give both or neither.")
    if any(same_file(path, args.output) for path in (args.sentences, args.text or args.sentences)):
        raise PluginError(f"--output {args.output} is an input. Name another file.")
    lines = read_lines(args.sentences)
    if args.drop == "last":
        write_lines(args.output, [without_last(line, args.share) for line in lines])
        return
    counts: CounterOf[str] = Counter()
    for line in read_lines(args.text):
        counts.update(normalised(line).split())
    write_lines(args.output, [without_rarest(line, args.share, counts) for line in lines])


if __name__ == "__main__":
    main()
