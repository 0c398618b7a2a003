"""``specdec-check``: whether methods are lossless on a model and a text of the user's."""

import sys
from typing import List, Optional, Sequence

from ...fairseq_compat.interrupts import console_program
from ...fairseq_compat.user_dir import import_user_dir
from ...outputs import check_output
from ..bench.report import table
from ..options import open_session
from .command_line import build_parser, check_options, method_names
from .explain import is_tie, told
from .programs import line_up
from .text import read_text
from .work import Outcome, check


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program; the exit status is 1 where a difference is no tie."""
    argv = sys.argv[1:] if argv is None else argv
    import_user_dir(argv)
    options = build_parser().parse_args(argv)
    names = method_names(options)
    check_options(options, names)
    check_output(options.output, folder=True)
    session = open_session(options)
    text = read_text(session, options)
    fewer = options.sentences and text.taken(options.sentences, options.batch_size)
    if fewer:
        print(fewer + "\n")
    outcomes = check(session, text, options, line_up(options, names))
    if report(outcomes, options.tie) > 0:
        raise SystemExit(1)


def report(outcomes: Sequence[Outcome], tie: float) -> int:
    """Print all differences and a table.

    Args:
        outcomes: of each method.
        tie: how far log-probabilities of a tie may be apart.

    Returns:
        how many differences are no ties.
    """
    rows: List[List[str]] = []
    total = 0
    for outcome in outcomes:
        differences = [each for line in outcome.lines for each in line["differences"]]
        unexplained = 0
        for each in differences:
            tied = is_tie(each, tie)
            unexplained += not tied
            verdict = "a tie" if tied else "DIFFERENT"
            print(told(each, outcome.label, outcome.reference, verdict) + "\n")
        rows.append(_row(outcome, len(differences), unexplained))
        total += unexplained
    head = ["method", "compared with", "sentences", "equal", "ties", "different"]
    head += ["scores differ by at most", "accepted tokens"]
    print(table(head, rows, texts=(0, 1)))
    print(f"\n{_summary(total, tie)}")
    return total


def _row(outcome: Outcome, differences: int, unexplained: int) -> List[str]:
    sentences = sum(line["sentences"] for line in outcome.lines)
    farthest = max((line["score_difference"] for line in outcome.lines), default=0.0)
    counts = sentences, sentences - differences, differences - unexplained, unexplained
    accepted = "" if outcome.accepted is None else f"{outcome.accepted:.2f}"
    texts = [f"{count:,}" for count in counts]
    return [outcome.label, outcome.reference, *texts, f"{farthest:.1e}", accepted]


def _summary(unexplained: int, tie: float) -> str:
    if unexplained == 0:
        return f"Lossless here: every hypothesis is equal, or a tie within {tie:g}."
    return f"Not lossless: {unexplained:,} of the hypotheses differ by more than a tie."


if __name__ == "__main__":
    main()
