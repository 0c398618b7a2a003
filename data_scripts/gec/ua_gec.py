"""UA-GEC's sentences and corrections to pairs for training, and to an M2 file of all annotators."""

import argparse
import os
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from linestreams import atomic_writer, clean, read_lines
from parallel_to_m2 import NOOP, can_be_written, edit_line, find_edits
from textfiles import check_parallel, find_text, write_pairs

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Read UA-GEC (Syvokon et al., 2023), and write into OUTPUT the pairs train, edited (those of
train with a correction), valid and dev, each as .err and .cor, and dev.m2. In dev, a sentence that
several annotators corrected stands once, with all its corrections in dev.m2.

CORPUS is the folder data/gec-only/train of the corpus, with a file for each document. Documents
whose number ends in 7 are dev, and a twentieth of all documents are valid. Or it holds train.src,
train.tgt, dev.src and dev.tgt (plain or .gz); then the last lines of train are valid, a
twentieth."""

EXAMPLE = """\
example:
  python data_scripts/gec/ua_gec.py ua-gec/data/gec-only/train --output real"""

SOURCES, TARGETS = "source-sentences-tokenized", "target-sentences-tokenized"
#: One document, or line, of so many is for validation.
VALID = 20
#: What a document's number modulo ten is if it is for development.
DEV = 7

Pair = Tuple[str, str]


class Split(NamedTuple):
    """The pairs of the corpus: sentences as written, and corrected."""

    train: List[Pair]
    valid: List[Pair]
    dev: List[Pair]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="ua_gec.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", metavar="CORPUS", help="the folder of UA-GEC")
    parser.add_argument("--output", required=True, metavar="OUTPUT", help="folder to write")
    return parser


def read_pairs(source: str, target: str) -> List[Pair]:
    """The pairs of two files, without those where a side is empty."""
    sides = [[clean(line) for line in read_lines(path)] for path in (source, target)]
    check_parallel(source, target, *map(len, sides))
    return [(wrong, right) for wrong, right in zip(*sides) if wrong and right]


def read_documents(corpus: Path) -> Split:
    """The corpus as it is published, split by document."""
    split = Split([], [], [])
    for target in sorted((corpus / TARGETS).glob("*.txt")):
        name = target.name.split(".")[0]
        if not name.isdecimal():
            raise PluginError(
                f"{target} has no number of a document in its name, as 0001.a1.txt. Rename it."
            )
        source = corpus / SOURCES / f"{name}.src.txt"
        number = int(name)
        pairs = split.dev if number % 10 == DEV else split.train
        if number % VALID == 3:  # none of these ends in DEV
            pairs = split.valid
        pairs += read_pairs(str(source), str(target))
    return split


def read_files(corpus: Path) -> Split:
    """The corpus as two files for each part."""
    train, dev = [
        read_pairs(*(find_text(str(corpus / f"{part}.{side}")) for side in ("src", "tgt")))
        for part in ("train", "dev")
    ]
    kept = len(train) - len(train) // VALID
    return Split(train[:kept], train[kept:], dev)


def by_sentence(pairs: Iterable[Pair]) -> Dict[str, List[str]]:
    """Each sentence once, in its first place, with its different corrections."""
    found: Dict[str, List[str]] = {}
    for wrong, right in pairs:
        known = found.setdefault(wrong, [])
        if right not in known:
            known.append(right)
    return found


def m2_lines(wrong: str, corrections: Iterable[str]) -> List[str]:
    """A sentence of an M2 file; the annotators are numbered in the order of the corrections."""
    lines = [f"S {wrong}"]
    for annotator, right in enumerate(corrections):
        edits = filter(can_be_written, find_edits(wrong.split(), right.split()))
        found = [edit._replace(annotator=annotator) for edit in edits]
        lines += map(edit_line, found or [NOOP._replace(annotator=annotator)])
    return [*lines, ""]


def write_all(split: Split, output: str) -> str:
    """Every file; returns what was written, in a sentence."""
    for name, pairs in (("train", split.train), ("valid", split.valid), ("dev", split.dev)):
        if not pairs:
            raise PluginError(f"The corpus has no sentence for {name}. Check the folder.")
    dev = by_sentence(split.dev)
    edited = [pair for pair in split.train if pair[0] != pair[1]]
    with atomic_writer(os.path.join(output, "dev.m2")) as m2:
        for wrong, corrections in dev.items():
            m2.writelines(line + "\n" for line in m2_lines(wrong, corrections))
    first = [(wrong, corrections[0]) for wrong, corrections in dev.items()]
    parts = {"dev": first, "valid": split.valid, "edited": edited, "train": split.train}
    for name, pairs in parts.items():
        write_pairs(os.path.join(output, name), pairs, ("err", "cor"))
    several = sum(len(corrections) > 1 for corrections in dev.values())
    told = ", ".join(f"{name} {len(pairs):,}" for name, pairs in parts.items())
    return f"Pairs: {told}. {several:,} sentences of dev have several corrections."


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    corpus = Path(args.corpus)
    read = read_documents if (corpus / TARGETS).is_dir() else read_files
    print(write_all(read(corpus), args.output))


if __name__ == "__main__":
    main()
