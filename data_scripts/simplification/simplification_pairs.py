"""Corpora of simplified sentences to pairs for training, and to parts that are held apart."""

import argparse
import difflib
import os
import zlib
from typing import Dict, List, NamedTuple, Optional, Tuple

from simple_text import letters, normalised
from textfiles import check_parallel, find_text, read_lines, write_lines, write_pairs

from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Read corpora CORPUS/NAME.orig with several simplifications NAME.simp.0, NAME.simp.1 and so on
(plain or .gz), as ASSET has them. The letters of a sentence decide its part, so that a sentence
of two corpora is in the same part of both: train, valid or test. In OUTPUT:

  train.src, train.tgt   every sentence with each of its simplifications
  valid.src, valid.tgt   the same of the part to choose by
  PART.NAME.orig, PART.NAME.ref0 ...   of valid and test: sentences, and their references

A source of train and valid ends in two words: len8 tells that the target has 8 tenths of its
characters, and sim6 that they are alike by 6 tenths (Martin et al., 2020, use such controls)."""

EXAMPLE = """\
example:
  python data_scripts/simplification/simplification_pairs.py corpora asset.valid turk.tune \\
      --output pairs"""

#: Of ten sentences, those whose number is here.
PARTS = {"test": (0, 1), "valid": (2,)}
#: The shortest and the longest target that a control tells apart, in tenths.
LENGTHS = (2, 14)


class Corpus(NamedTuple):
    """Sentences and their simplifications."""

    name: str
    sentences: List[str]
    #: A list for each reference.
    references: List[List[str]]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="simplification_pairs.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("corpus", metavar="CORPUS", help="folder of the files")
    parser.add_argument("names", nargs="+", metavar="NAME", help="as asset.valid")
    parser.add_argument("--output", required=True, metavar="OUTPUT", help="folder to write")
    return parser


def part_of(sentence: str) -> str:
    """The part that a normalised sentence belongs to, by the check sum (CRC-32) of its letters."""
    number = zlib.crc32(letters(sentence).encode("utf-8")) % 10
    return next((part for part, numbers in PARTS.items() if number in numbers), "train")


def exists(path: str) -> bool:
    """Whether a text is there, plain or packed."""
    return any(os.path.exists(path + end) for end in ("", ".gz"))


def read_corpus(folder: str, name: str) -> Corpus:
    """One corpus; PluginError where a file is missing, or of another length."""
    prefix = os.path.join(folder, name)
    original = find_text(f"{prefix}.orig")
    sentences = list(map(normalised, read_lines(original)))
    references: List[List[str]] = []
    while exists(f"{prefix}.simp.{len(references)}"):
        path = find_text(f"{prefix}.simp.{len(references)}")
        references.append(list(map(normalised, read_lines(path))))
        check_parallel(path, original, len(references[-1]), len(sentences))
    if not references:
        raise PluginError(f"{prefix}.simp.0 is missing. Give a corpus with simplifications.")
    return Corpus(name, sentences, references)


def controls(length: int, similarity: int) -> str:
    """The words that end a source; see :data:`DESCRIPTION`."""
    return f"len{length} sim{similarity}"


def controls_of(source: str, target: str) -> str:
    """Those that a pair has.

    >>> controls_of("a long sentence .", "a sentence .")
    'len7 sim8'
    """
    length = round(10 * len(target) / max(1, len(source)))
    alike = difflib.SequenceMatcher(None, source, target, autojunk=False).ratio()
    return controls(min(max(length, LENGTHS[0]), LENGTHS[1]), round(10 * alike))


def pairs_of(corpus: Corpus, part: str) -> List[Tuple[str, str]]:
    """Sources with controls, and targets."""
    found = []
    for row, source in enumerate(Progress(corpus.sentences, unit="sentence", desc=part)):
        if part_of(source) != part:
            continue
        targets = [reference[row] for reference in corpus.references]
        for target in dict.fromkeys(filter(None, targets)):
            found.append((f"{source} {controls_of(source, target)}", target))
    return found


def write_part(corpus: Corpus, part: str, output: str) -> int:
    """A part that is scored, with its references; returns how many sentences it has."""
    rows = [row for row, each in enumerate(corpus.sentences) if part_of(each) == part]
    prefix = os.path.join(output, f"{part}.{corpus.name}")
    for number, reference in enumerate(corpus.references):
        write_lines(f"{prefix}.ref{number}", [reference[row] for row in rows])
    return write_lines(f"{prefix}.orig", [corpus.sentences[row] for row in rows])


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    corpora = [read_corpus(args.corpus, name) for name in args.names]
    counts: Dict[str, int] = {}
    for corpus in corpora:
        for part in PARTS:
            counts[f"{part}.{corpus.name}"] = write_part(corpus, part, args.output)
    for part in ("valid", "train"):
        pairs = [pair for corpus in corpora for pair in pairs_of(corpus, part)]
        if not pairs:
            raise PluginError(f"No sentence is left for {part}. Give more text.")
        counts[f"pairs of {part}"] = write_pairs(os.path.join(args.output, part), pairs)
    print(", ".join(f"{name}: {count:,}" for name, count in counts.items()) + ".")


if __name__ == "__main__":
    main()
