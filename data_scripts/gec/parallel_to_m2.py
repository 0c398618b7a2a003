"""Line-aligned text and its corrections to an M2 file, against which corrections are scored."""

import argparse
import itertools
from collections import Counter
from typing import Counter as CounterOf
from typing import List, Optional, Sequence, Tuple

from linestreams import add_suffixes, atomic_writer, read_lines
from textfiles import find_text

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.gec.m2 import Edit
from specdec_plugin.lab.gec.maxmatch import levenshtein
from specdec_plugin.outputs import same_file
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Write PREFIX.err and PREFIX.cor (plain or .gz), tokenised and line-aligned, as an
M2 file, for specdec-gec-score. Edits are read off a shortest alignment of tokens;
those that touch are one. Their types are M (missing), U (unnecessary) and
R (replace).

M2 cannot express a correction that holds "||", ends in "|", or is "-NONE-": such
edits are left out, and reported."""

EXAMPLE = """\
example:
  python data_scripts/gec/parallel_to_m2.py pairs/test --output pairs/test.m2"""

#: What stands below a sentence that was right.
NOOP = Edit(-1, -1, "-NONE-", "noop", 0)


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="parallel_to_m2.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", metavar="PREFIX", help="of the two files")
    parser.add_argument("--output", required=True, metavar="M2", help="the file to write")
    add_suffixes(parser, "sources and corrections")
    return parser


def kept_tokens(wrong: Sequence[str], right: Sequence[str]) -> List[Tuple[int, int]]:
    """The tokens that a shortest alignment leaves as they are, as places on both sides.

    >>> kept_tokens("a b c".split(), "a x b".split())
    [(0, 0), (1, 2)]
    """
    distances = levenshtein(wrong, right, substitution=1)
    i, j = len(wrong), len(right)
    kept: List[Tuple[int, int]] = []
    while i and j:
        if wrong[i - 1] == right[j - 1]:  # then no other last step is better
            i, j = i - 1, j - 1
            kept.append((i, j))
        elif distances[i][j] == distances[i - 1][j - 1] + 1:
            i, j = i - 1, j - 1
        elif distances[i][j] == distances[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return kept[::-1]


def find_edits(wrong: Sequence[str], right: Sequence[str]) -> List[Edit]:
    """What turns one into the other: an edit for each gap between tokens that are kept.

    >>> [edit[:4] for edit in find_edits("it rain in night".split(), "it rains at night".split())]
    [(1, 3, 'rains at', 'R')]
    """
    edits: List[Edit] = []
    i = j = 0
    for next_i, next_j in [*kept_tokens(wrong, right), (len(wrong), len(right))]:
        if (i, j) != (next_i, next_j):
            kind = "M" if i == next_i else "U" if j == next_j else "R"
            edits.append(Edit(i, next_i, " ".join(right[j:next_j]), kind, 0))
        i, j = next_i + 1, next_j + 1
    return edits


def can_be_written(edit: Edit) -> bool:
    """Whether M2 has a way to write it (see :data:`DESCRIPTION`)."""
    return "||" not in edit.replacement + "|" and edit.replacement != "-NONE-"


def edit_line(edit: Edit) -> str:
    """The line of an M2 file."""
    return (
        f"A {edit.start} {edit.end}|||{edit.type}|||{edit.replacement}"
        f"|||REQUIRED|||-NONE-|||{edit.annotator}"
    )


def convert(wrong_path: str, right_path: str, output: str) -> CounterOf[str]:
    """Write the file; returns counts of sentences, edits and edits left out."""
    counts: CounterOf[str] = Counter()
    pairs = itertools.zip_longest(read_lines(wrong_path), read_lines(right_path))
    with atomic_writer(output) as m2:
        for wrong, right in Progress(pairs, unit="sentence"):
            if wrong is None or right is None:
                raise PluginError(
                    f"{wrong_path} and {right_path} differ in their numbers of lines: they are "
                    "not the two sides of one corpus. Make them line-aligned."
                )
            tokens = wrong.split()
            found = find_edits(tokens, right.split())
            edits = list(filter(can_be_written, found))
            counts.update(sentences=1, edits=len(edits), left_out=len(found) - len(edits))
            lines = ["S " + " ".join(tokens), *map(edit_line, edits or [NOOP])]
            m2.write("\n".join(lines) + "\n\n")
    return counts


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    wrong, right = [find_text(f"{args.input}.{suffix}") for suffix in args.suffixes]
    if same_file(wrong, right, args.output):
        raise PluginError("The two inputs and the output must be three files. Choose other names.")
    counts = convert(wrong, right, args.output)
    print(
        f"{counts['sentences']:,} sentences, {counts['edits']:,} edits; "
        f"{counts['left_out']:,} that M2 cannot express left out."
    )


if __name__ == "__main__":
    main()
