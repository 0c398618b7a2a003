"""M2 files, as real corrections come in, to the line-aligned text that fairseq reads."""

import argparse
from collections import Counter
from typing import Counter as CounterOf
from typing import Iterable, Iterator, List, Optional, Sequence, Tuple

from linestreams import add_suffixes, atomic_writer, clean

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.gec.m2 import Annotations, apply_edits, read_m2_file, without_overlaps
from specdec_plugin.outputs import same_file
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Write the sentences of an M2 file (plain or .gz) and their corrections as two
line-aligned files, PREFIX.err and PREFIX.cor, in the tokens of the M2 file.

Of edits that overlap, the one that begins first is applied; an edit beyond the
end of its sentence is left out. Both are reported."""

EXAMPLE = """\
examples:
  # what the first annotator wrote, a line for each sentence
  python data_scripts/gec/m2_to_parallel.py train.m2.gz --output train
  # all corrections there are, without the sentences that were right already
  python data_scripts/gec/m2_to_parallel.py train.m2 --output train \\
      --annotator named --drop-unchanged"""

ALL, NAMED = "all", "named"

#: Its tokens, and its edits.
Sentence = Tuple[List[str], Annotations]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="m2_to_parallel.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", metavar="M2", help="plain or .gz; - for standard input")
    parser.add_argument("--output", required=True, metavar="PREFIX", help="of the two files")
    add_suffixes(parser, "sources and corrections")
    parser.add_argument(
        "--annotator",
        default="0",
        metavar="N",
        help="whose corrections (default 0; one without edits left the sentence unchanged); "
        "'all': of each annotator whom the file names, a line each; "
        "'named': only of those who are named below the sentence",
    )
    parser.add_argument(
        "--drop-unchanged", action="store_true", help="leave out pairs of equal lines"
    )
    return parser


def annotators_of(sentences: Iterable[Sentence]) -> List[int]:
    """All whom the file names, in order."""
    named = {annotator for _, annotations in sentences for annotator in annotations}
    return sorted(named) or [0]


def corrections(
    tokens: Sequence[str], annotations: Annotations, annotators: Optional[Iterable[int]]
) -> Iterator[Tuple[str, int]]:
    """The sentence as each of these annotators corrected it, and edits left out as overlapping.

    Args:
        tokens: of the source.
        annotations: the edits of each annotator who is named below it.
        annotators: whose corrections; ``None``: of those, or of one without edits.
    """
    for annotator in sorted(annotations) or [0] if annotators is None else annotators:
        edits = annotations.get(annotator, [])
        overlapping = len(edits) - len(without_overlaps(edits))
        yield clean(" ".join(apply_edits(tokens, edits))), overlapping


def convert(args: argparse.Namespace, sentences: Iterable[Sentence]) -> CounterOf[str]:
    """Write both files; returns counts of sentences, pairs and edits left out."""
    annotators = chosen_annotators(args, sentences)
    counts: CounterOf[str] = Counter(sentences=0, pairs=0, dropped=0, overlapping=0)
    wrong_path, right_path = [f"{args.output}.{suffix}" for suffix in args.suffixes]
    with atomic_writer(wrong_path) as wrong, atomic_writer(right_path) as right:
        for tokens, annotations in Progress(sentences, unit="sentence"):
            counts["sentences"] += 1
            source = clean(" ".join(tokens))
            for corrected, overlapping in corrections(tokens, annotations, annotators):
                counts["overlapping"] += overlapping
                if args.drop_unchanged and corrected == source:
                    counts["dropped"] += 1
                    continue
                wrong.write(source + "\n")
                right.write(corrected + "\n")
                counts["pairs"] += 1
        if not counts["pairs"]:
            raise PluginError(
                f"No pair comes of {args.input}. Give a file with sentences (and corrections, "
                "if you drop unchanged pairs)."
            )
    return counts


def chosen_annotators(
    args: argparse.Namespace, sentences: Iterable[Sentence]
) -> Optional[List[int]]:
    """Whose corrections are wanted; ``None`` for those named below each sentence."""
    if args.annotator == NAMED:
        return None
    there = annotators_of(sentences)
    if args.annotator == ALL:
        return there
    if not args.annotator.isdecimal():
        raise PluginError(
            f"--annotator {args.annotator} is no annotator. Give a number, '{ALL}' or '{NAMED}'."
        )
    if int(args.annotator) not in there:
        raise PluginError(
            f"{args.input} names no annotator {args.annotator}. "
            f"Choose from {', '.join(map(str, there))}."
        )
    return [int(args.annotator)]


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    if same_file(args.input, *(f"{args.output}.{suffix}" for suffix in args.suffixes)):
        raise PluginError("The input and the two outputs must be three files. Choose other names.")
    sentences: Iterable[Sentence] = read_m2_file(args.input)
    if args.annotator != NAMED:
        # Annotators are found first. Standard input can be read once, and each warning comes once.
        sentences = list(sentences)
    counts = convert(args, sentences)
    print(
        f"{counts['pairs']:,} pairs of {counts['sentences']:,} sentences; "
        f"{counts['dropped']:,} unchanged ones dropped, "
        f"{counts['overlapping']:,} overlapping edits left out."
    )


if __name__ == "__main__":
    main()
