"""Clean text of several files to training, development and test sentences."""

import argparse
import contextlib
import zlib
from collections import Counter
from typing import Counter as CounterOf
from typing import Iterator, List, Optional, Sequence

from linestreams import atomic_writer, clean, read_lines
from textfiles import split_sentences

from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Read text, plain or .gz, and write OUTPUT/train.en, dev.en and test.en, a sentence a
line. A line is cut where a sentence ends and a capital follows. Typographic quotes
become straight ones, as in corpora of learners' errors. Text that repeats an earlier
sentence is left out. The sentence itself decides which file it goes to, so that more text
moves no sentence."""

EXAMPLE = """\
example:
  python data_scripts/gec/split_text.py common-voice.en.gz abstracts.gz --output general"""

SPLITS = ("train", "dev", "test")
#: Of so many sentences, one is for development and one for testing.
HELD_OUT = 100
_STRAIGHT = str.maketrans("‘’“”", "''\"\"")


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="split_text.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("inputs", nargs="+", metavar="TEXT", help="plain or .gz")
    parser.add_argument("--output", required=True, metavar="DIR", help="of the three files")
    parser.add_argument("--suffix", default="en", help="of the three files (default en)")
    return parser


def sentences(line: str) -> List[str]:
    """The sentences of a line, with straight quotes.

    >>> sentences("It’s late. Go home, Mr. Smith.")
    ["It's late.", 'Go home, Mr.', 'Smith.']
    """
    return split_sentences(clean(line).translate(_STRAIGHT))


def split_of(sentence: str) -> str:
    """The file that a sentence belongs to, by its check sum (CRC-32)."""
    number = zlib.crc32(sentence.lower().encode("utf-8")) % HELD_OUT
    return SPLITS[number + 1] if number + 1 < len(SPLITS) else SPLITS[0]


def all_sentences(paths: Sequence[str]) -> Iterator[str]:
    """Those of all files, each once."""
    seen = set()
    for path in paths:
        for line in Progress(read_lines(path), unit="line"):
            for sentence in sentences(line):
                if sentence and sentence not in seen:
                    seen.add(sentence)
                    yield sentence


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    counts: CounterOf[str] = Counter()
    with contextlib.ExitStack() as stack:
        files = {
            split: stack.enter_context(atomic_writer(f"{args.output}/{split}.{args.suffix}"))
            for split in SPLITS
        }
        for sentence in all_sentences(args.inputs):
            split = split_of(sentence)
            files[split].write(sentence + "\n")
            counts[split] += 1
        for split in SPLITS:
            if not counts[split]:
                raise PluginError(f"No sentence is left for {split}. Give more text.")
    print(", ".join(f"{split}: {counts[split]:,} sentences" for split in SPLITS) + ".")


if __name__ == "__main__":
    main()
