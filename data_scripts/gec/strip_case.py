"""Text without case and punctuation, from which a model learns to restore both."""

import argparse
import re
from typing import Callable, FrozenSet, Optional, Sequence

from linestreams import rewrite

DESCRIPTION = """\
Read tokenised text from standard input, a sentence a line, and write it in lower
case, without the tokens that are punctuation only. A line is written for every
line, if empty.

Words with other characters than letters, digits, full stops, apostrophes and
hyphens (markup, code) stay as they are: what was in them, nobody could guess."""

EXAMPLE = """\
examples:
  python data_scripts/gec/strip_case.py < pairs/train.cor > pairs/train.err
  zcat corpus.tok.gz | python data_scripts/gec/strip_case.py --keep-punctuation > lower.tok"""

#: Characters of which tokens consist that are removed.
PUNCTUATION = ".,;:!?\"'()[]“”‘’«»…—–-"

_ORDINARY = re.compile(r"(?:[^\W_]|[.'’-])+")


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="strip_case.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--keep-case", action="store_true", help="remove punctuation only")
    parser.add_argument("--keep-punctuation", action="store_true", help="lower-case only")
    parser.add_argument(
        "--punctuation",
        default=PUNCTUATION,
        metavar="CHARACTERS",
        help="a token that consists of these is removed (default %(default)s)",
    )
    parser.add_argument("--markup", action="store_true", help="lower-case markup and code, too")
    return parser


def stripper(args: argparse.Namespace) -> Callable[[str], str]:
    """What turns a line into a stripped one, as the options say."""
    removed: FrozenSet[str] = frozenset("" if args.keep_punctuation else args.punctuation)

    def lower(token: str) -> str:
        wanted = not args.keep_case and (args.markup or _ORDINARY.fullmatch(token))
        return token.lower() if wanted else token

    def strip(line: str) -> str:
        return " ".join(lower(token) for token in line.split() if not removed.issuperset(token))

    return strip


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if args.keep_case and args.keep_punctuation:
        parser.error("--keep-case and --keep-punctuation leave nothing to do: drop one")
    rewrite(stripper(args))


if __name__ == "__main__":
    main()
