"""Lines of words drawn from a vocabulary, to misspell: rare words come in them often enough."""

import argparse
from bisect import bisect
from itertools import accumulate
from typing import Iterator, List, Optional, Sequence

from confusion import read_vocabulary
from draws import Draws
from linestreams import atomic_writer

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Write lines of words from the vocabulary that make_errors.py counted. A word that occurs n
times in text is drawn in proportion to the square root of n. Of running text a model of
spelling learns frequent words first, and rare ones late."""

EXAMPLE = """\
example:
  python data_scripts/gec/sample_words.py words.txt --lines 30000 --output words.en"""

#: Letters that a word has at least: shorter ones cannot be told from one another.
SHORTEST = 3


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="sample_words.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("vocabulary", metavar="WORDS", help="a word and its count a line")
    parser.add_argument("--output", required=True, metavar="FILE", help="to write")
    parser.add_argument(
        "--lines", type=int, default=30_000, metavar="N", help="to write (default 30000)"
    )
    parser.add_argument(
        "--width", type=int, default=8, metavar="N", help="words a line (default 8)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the draws (default 1)")
    return parser


def sampled(words: Sequence[str], weights: Sequence[float], width: int, seed: int) -> Iterator[str]:
    """Lines of ``width`` words each, without end."""
    total, draws = list(accumulate(weights)), Draws()
    draws.restart(seed)
    while True:
        positions = [bisect(total, draws.uniform() * total[-1]) for _ in range(width)]
        yield " ".join(words[min(position, len(words) - 1)] for position in positions)


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    if min(args.lines, args.width) < 1:
        raise PluginError("--lines and --width must be at least 1. Correct them.")
    counts = read_vocabulary(args.vocabulary)
    words = [word for word in counts if len(word) >= SHORTEST and word.isalpha()]
    if not words:
        raise PluginError(f"{args.vocabulary} holds no word of {SHORTEST} letters. Give more text.")
    lines = sampled(words, [counts[word] ** 0.5 for word in words], args.width, args.seed)
    with atomic_writer(args.output) as output:
        for _, line in zip(range(args.lines), lines):
            output.write(line + "\n")


if __name__ == "__main__":
    main()
