"""One corpus of several directions from one language, each source line marked with its target."""

import argparse
import os
import random
from typing import Dict, List, Optional, Sequence, Tuple

from textfiles import check_parallel, clean, find_text, read_lines, write_lines

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
CORPUS/en-es/train.en and train.es, CORPUS/en-fr/train.en and train.fr, … (plain or .gz)
-> OUTPUT/all/train.src and train.tgt with all of them, and OUTPUT/es/train.src and
train.tgt, … with one direction each. A source line begins with a word that names the
target language, such as __es__. The same for dev and test. OUTPUT/es/others.src: the training
sentences of other directions that are not among its own, in random order, also marked with it:
a text that the model can translate."""

EXAMPLE = """\
example:
  python data_scripts/join_directions.py corpora/pydocs --source en \\
      --targets es fr pt zh ja --output text"""

SPLITS = ("train", "dev", "test")
Sides = Tuple[List[str], List[str]]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="join_directions.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", metavar="CORPUS", help="folder with a folder for each direction")
    parser.add_argument("--source", required=True, metavar="LANG", help="of all directions")
    parser.add_argument("--targets", required=True, nargs="+", metavar="LANG", help="one for each")
    parser.add_argument("--output", required=True, metavar="DIR", help="folder to write")
    return parser


def mark_of(language: str) -> str:
    """The word before a source line that is to be translated into a language.

    >>> mark_of("es")
    '__es__'
    """
    return f"__{language}__"


def read_direction(corpus: str, source: str, target: str, split: str) -> Sides:
    """Both sides of a split, clean, and the source marked.

    Raises:
        PluginError: a side is missing, or they have not as many lines.
    """
    prefix = os.path.join(corpus, f"{source}-{target}", split)
    paths = [find_text(f"{prefix}.{language}") for language in (source, target)]
    sides = [[clean(line) for line in read_lines(path)] for path in paths]
    check_parallel(*paths, *map(len, sides))
    return [f"{mark_of(target)} {line}".rstrip() for line in sides[0]], sides[1]


def write_sides(folder: str, split: str, sides: Sides) -> None:
    """Both sides of a split, as ``.src`` and ``.tgt``."""
    for side, lines in zip(("src", "tgt"), sides):
        write_lines(os.path.join(folder, f"{split}.{side}"), lines)


def write_others(output: str, sources: Dict[str, Sequence[str]]) -> None:
    """For each direction, the sentences that others have and it has not."""
    everything = sorted({line for lines in sources.values() for line in lines if line})
    random.Random(1).shuffle(everything)
    for target, lines in sources.items():
        own = set(lines)
        others = [f"{mark_of(target)} {line}" for line in everything if line not in own]
        write_lines(os.path.join(output, target, "others.src"), others)


def join(corpus: str, source: str, targets: Sequence[str], output: str) -> None:
    """Write all splits of all directions, and of each."""
    for split in SPLITS:
        everything: Sides = ([], [])
        sources: Dict[str, Sequence[str]] = {}
        for target in targets:
            sides = read_direction(corpus, source, target, split)
            write_sides(os.path.join(output, target), split, sides)
            sources[target] = [line[len(mark_of(target)) + 1 :] for line in sides[0]]
            for whole, part in zip(everything, sides):
                whole.extend(part)
            print(f"{split}, {source}-{target}: {len(sides[0]):,} lines")
        write_sides(os.path.join(output, "all"), split, everything)
        if split == "train":
            write_others(output, sources)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    args = get_parser().parse_args(argv)
    twice = sorted({each for each in args.targets if args.targets.count(each) > 1})
    if twice:
        raise PluginError(f"--targets names {', '.join(twice)} twice. Name each language once.")
    join(args.corpus, args.source, args.targets, args.output)


if __name__ == "__main__":
    main()
