"""Sequence-level knowledge distillation, step 3: drop the pairs that would teach nothing good."""

import argparse
from collections import Counter
from typing import Counter as CounterOf
from typing import List, Optional, Tuple

from textfiles import atomic_writer, check_parallel, read_piece_lines

from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import same_file
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Drop sentence pairs from two line-aligned files of subword pieces: those that
are empty on a side, too long on a side, or of very unequal lengths (the longer
side has more than RATIO x the shorter + SLACK pieces: a teacher that repeats
itself, or stops early). Both outputs stay line-aligned."""

EXAMPLE = """\
example:
  python data_scripts/filter_pairs.py pieces/train.en distilled/train.es \\
      --output-source kd/train.en --output-target kd/train.es"""

#: The reasons in the order in which they are tried; a pair counts for the first.
REASONS = ("empty", "too long", "length ratio")


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="filter_pairs.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE", help="source pieces (or .gz)")
    parser.add_argument("target", metavar="TARGET", help="target pieces (or .gz)")
    for side in ("source", "target"):
        about = f"where {side} pieces of the pairs that are kept are written"
        parser.add_argument(f"--output-{side}", required=True, metavar="FILE", help=about)
    parser.add_argument(
        "--max-pieces", type=int, default=290, metavar="N", help="of one side (default 290)"
    )
    parser.add_argument(
        "--max-ratio",
        type=float,
        default=2.5,
        metavar="RATIO",
        help="of the longer side to the shorter one (default 2.5)",
    )
    parser.add_argument(
        "--ratio-slack",
        type=float,
        default=10.0,
        metavar="SLACK",
        help="pieces that the longer side may have besides (default 10)",
    )
    return parser


def reason_to_drop(
    source: int, target: int, max_pieces: int, max_ratio: float, slack: float
) -> Optional[str]:
    """Why a pair of so many pieces is dropped; ``None`` if it is kept.

    >>> reason_to_drop(4, 21, 290, 2.5, 10.0), reason_to_drop(4, 20, 290, 2.5, 10.0)
    ('length ratio', None)
    """
    shorter, longer = sorted((source, target))
    if shorter == 0:
        return "empty"
    if longer > max_pieces:
        return "too long"
    if longer > max_ratio * shorter + slack:
        return "length ratio"
    return None


def told(dropped: CounterOf[str]) -> str:
    """How many pairs were dropped for each reason, for people."""
    return ", ".join(f"{dropped[reason]:,} {reason}" for reason in REASONS)


def filter_pairs(args: argparse.Namespace) -> Tuple[int, CounterOf[str]]:
    """Write the pairs that are kept; returns how many, and how many were dropped why."""
    source, target = read_piece_lines(args.source), read_piece_lines(args.target)
    check_parallel(args.source, args.target, len(source), len(target))
    dropped: CounterOf[str] = Counter()
    with (
        atomic_writer(args.output_source) as out_source,
        atomic_writer(args.output_target) as out_target,
    ):
        for pair in Progress(zip(source, target), total=len(source), unit="pair"):
            pieces = [len(side.split()) for side in pair]
            reason = reason_to_drop(
                pieces[0], pieces[1], args.max_pieces, args.max_ratio, args.ratio_slack
            )
            if reason is None:
                out_source.write(pair[0] + "\n")
                out_target.write(pair[1] + "\n")
            else:
                dropped[reason] += 1
        if len(source) == sum(dropped.values()):
            # Here, so that what the outputs held before stays.
            raise PluginError(
                f"No pair was kept; dropped {told(dropped)}. Check that the files are subword "
                "pieces."
            )
    return len(source) - sum(dropped.values()), dropped


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    if same_file(args.source, args.target, args.output_source, args.output_target):
        raise PluginError(
            "The two inputs and the two outputs must be four files. Choose other output names."
        )
    kept, dropped = filter_pairs(args)
    print(f"Kept {kept:,} of {kept + sum(dropped.values()):,} pairs; dropped {told(dropped)}.")


if __name__ == "__main__":
    main()
