"""Variants of text: words give way to others that stand between the same neighbours."""

import argparse
import random
from collections import Counter, defaultdict
from itertools import accumulate
from typing import Counter as CounterOf
from typing import Dict, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple

from textfiles import find_text, read_lines, write_lines

from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import same_file
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Write variants of a text in one language, a line for each line, copy after copy. A model that is
trained on another model's output learns more from sources that it has not seen before, and there
may be no more text of the domain. In a variant some words are replaced. Each replacement follows
the word on its left somewhere in the text, and precedes the word on its right somewhere. So a
variant reads like the text, although it need not make sense."""

EXAMPLE = """\
example:
  python data_scripts/vary_text.py train.en --copies 2 --output varied.en"""

#: What stands before the first word and behind the last.
EDGE = ""
#: Words that are drawn for a replacement before the word stays.
DRAWN = 5


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="vary_text.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("text", metavar="TEXT", help="a segment a line (or TEXT.gz)")
    add("--output", required=True, metavar="FILE", help="gets as many lines for each copy")
    add("--copies", type=int, default=1, metavar="N", help="of each line (default: %(default)s)")
    add(
        "--share",
        type=float,
        default=0.3,
        help="of the words for which a replacement is sought (default: %(default)s)",
    )
    add("--seed", type=int, default=1, metavar="N", help="default: %(default)s")
    return parser


class Followers(NamedTuple):
    """The words that follow a word in the text.

    Attributes:
        words: each of them once.
        ends: how often they and those before them follow; for ``random.choices``.
    """

    words: List[str]
    ends: List[int]


class Variants:
    """Replaces words by words between the same neighbours.

    Args:
        lines: the text whose neighbours count.
        share: of the words for which a replacement is sought.
    """

    def __init__(self, lines: Sequence[str], share: float) -> None:
        counts: Dict[str, CounterOf[str]] = defaultdict(Counter)
        for line in lines:
            words = line.split()
            for word, following in zip([EDGE, *words], [*words, EDGE]):
                counts[word][following] += 1
        self._pairs: Set[Tuple[str, str]] = {
            (word, following) for word in counts for following in counts[word]
        }
        self._followers = {
            word: Followers([*found], [*accumulate(found.values())])
            for word, found in counts.items()
        }
        self._share = share

    def of(self, line: str, draws: random.Random) -> str:
        """A variant of one of the lines. Neighbours in it are neighbours in the text."""
        words = line.split()
        varied = [EDGE]
        for word, following in zip(words, [*words[1:], EDGE]):
            sought = draws.random() < self._share
            varied.append(self._another(word, varied[-1], following, draws) if sought else word)
        return " ".join(varied[1:])

    def _another(self, word: str, before: str, following: str, draws: random.Random) -> str:
        """A word that stands between both neighbours, or the word itself."""
        found = self._followers[before]
        for drawn in draws.choices(found.words, cum_weights=found.ends, k=DRAWN):
            if drawn not in (word, EDGE) and (drawn, following) in self._pairs:
                return drawn
        return word


def varied(lines: Sequence[str], copies: int, share: float, seed: int) -> Iterator[str]:
    """All copies of a text. A line's variants do not depend on the other lines' draws."""
    variants = Variants(lines, share)
    for copy in range(copies):
        for number, line in enumerate(lines):
            yield variants.of(line, random.Random(f"{seed} {copy} {number}"))


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    if args.copies < 1:
        raise PluginError("--copies must be 1 or more. Correct it.")
    if not 0 < args.share <= 1:
        raise PluginError("--share must be above 0, and 1 at most. Correct it.")
    path = find_text(args.text)
    if same_file(path, args.output):
        raise PluginError(f"--output {args.output} is the text itself. Name another file.")
    lines = read_lines(path)
    if not lines:
        raise PluginError(f"{path} holds no line. Name another text.")
    made = varied(lines, args.copies, args.share, args.seed)
    total = args.copies * len(lines)
    count = write_lines(args.output, Progress(made, total=total, unit="line"))
    print(f"{args.output}: {count:,} lines.")


if __name__ == "__main__":
    main()
