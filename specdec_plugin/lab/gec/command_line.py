"""The command line of ``specdec-gec-score``: what it takes, and what it refuses."""

import argparse
from typing import Any, List

from ...errors import PluginError

DESCRIPTION = """\
Score hypotheses, a tokenised sentence a line, tokens separated by spaces as in the references:
  m2     MaxMatch precision, recall and F0.5 against the annotators of an M2 file
  gleu   GLEU (2016: without tuning, a random reference for each sentence, the mean of many draws)
  sari   SARI, for simplification
Files may be packed (.gz). Intervals are of resampled sentences (bootstrap)."""

EXAMPLE = """\
examples:
  specdec-gec-score --source dev.src --hypothesis dev.hyp --m2 dev.m2.gz
  specdec-gec-score --source dev.src --hypothesis dev.hyp --references dev.ref0 dev.ref1 --json
  specdec-gec-score --source dev.src --hypothesis dev.hyp --references dev.ref0 --metrics sari
  # how much better than the untouched source:
  specdec-gec-score --source dev.src --hypothesis dev.hyp --baseline dev.src \\
      --references dev.ref0"""

METRICS = ("m2", "gleu", "sari")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-gec-score",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    files = parser.add_argument_group("files")
    files.add_argument("--source", metavar="FILE", help="default: the sentences of --m2")
    files.add_argument("--hypothesis", required=True, metavar="FILE", help="what is scored")
    files.add_argument("--m2", metavar="FILE", help="the annotators' edits, for m2")
    files.add_argument(
        "--references",
        nargs="+",
        default=[],
        metavar="FILE",
        help="corrected or simplified sentences, a file for each reference; for gleu and sari",
    )
    files.add_argument(
        "--baseline",
        metavar="FILE",
        help="another hypothesis, or the source: also print how much better the first one is",
    )
    files.add_argument("--lower", action="store_true", help="lowercase everything first")
    _add_scoring(parser.add_argument_group("scores"))
    intervals = parser.add_argument_group("intervals")
    intervals.add_argument(
        "--samples", type=int, default=1000, help="resamples; 0: no intervals (default: 1000)"
    )
    intervals.add_argument("--confidence", type=float, default=0.95, help="(default: 0.95)")
    intervals.add_argument("--seed", type=int, default=1, help="of the resamples (default: 1)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def _add_scoring(group: Any) -> None:
    group.add_argument(
        "--metrics",
        help="comma-separated, of: m2, gleu, sari (default: m2 with --m2, gleu with --references)",
    )
    group.add_argument(
        "--errant",
        action="store_true",
        help="also score with the edits that ERRANT finds, if it is installed, against those of "
        "--m2, which should be ERRANT's, or else of --references",
    )
    group.add_argument("--beta", type=float, default=0.5, help="of F (default: 0.5)")
    group.add_argument(
        "--max-unchanged-words",
        type=int,
        default=2,
        help="m2: unchanged words that one edit may span (default: 2)",
    )
    group.add_argument(
        "--gleu-iterations", type=int, default=500, help="draws of references (default: 500)"
    )
    group.add_argument(
        "--sari-average",
        choices=("corpus", "sentence"),
        default="corpus",
        help="count n-grams over the corpus, as is usual today, or average the sentences' scores, "
        "as the original program does (default: %(default)s)",
    )
    group.add_argument(
        "--sari-deletion",
        choices=("precision", "f1"),
        default="precision",
        help="the score of deletions; the paper takes precision, EASSE takes F1 "
        "(default: %(default)s)",
    )


def metric_names(options: argparse.Namespace) -> List[str]:
    """The metrics of ``--metrics``, or those that the files allow.

    Raises:
        PluginError: a metric does not exist, or its files are not given.
    """
    given = {"m2": bool(options.m2), "gleu": bool(options.references)}
    given["sari"] = given["gleu"]
    if options.metrics is None:
        names = [name for name in ("m2", "gleu") if given[name]]
        if not names:
            raise PluginError("There is nothing to score against. Give --m2 or --references.")
        return names
    names = [name.strip() for name in options.metrics.split(",")]
    for name in names:
        if name not in METRICS:
            raise PluginError(
                f"--metrics {name}: there is no such metric. Known: {', '.join(METRICS)}."
            )
        if not given[name]:
            flag = "--m2" if name == "m2" else "--references"
            raise PluginError(f"--metrics {name} needs {flag}. Give it, or leave the metric out.")
    return names


def check_numbers(options: argparse.Namespace) -> None:
    """Refuse numbers out of range; PluginError names them."""
    for name, least in (("samples", 0), ("max_unchanged_words", 0), ("gleu_iterations", 1)):
        value = getattr(options, name)
        if value < least:
            raise PluginError(f"--{name.replace('_', '-')} {value}: give at least {least}.")
    if not options.beta > 0:
        raise PluginError(f"--beta {options.beta:g}: give a number above 0.")
    if not 0 < options.confidence < 1:
        raise PluginError(f"--confidence {options.confidence:g}: give a share between 0 and 1.")
    if options.seed < 0:
        raise PluginError(f"--seed {options.seed}: give at least 0.")
