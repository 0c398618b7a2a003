"""ROUGE of summaries against several references, with intervals."""

import argparse
import json
from typing import Dict, List, Optional, Sequence

import numpy as np
from summary_pairs import read_records, texts_of
from textfiles import check_parallel, read_lines

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.gec.bootstrap import Difference, Metric, estimate, for_json
from specdec_plugin.progress import Progress

DESCRIPTION = """\
ROUGE-1, -2 and -L (Lin, 2004), F1 in percent, by the package rouge-score with stemming. Of several
references the one with the highest F1 counts, for each of the three. Intervals are of resampled
articles (bootstrap)."""

EXAMPLE = """\
example:
  python data_scripts/summarization/score_summaries.py test.hyp --references test.jsonl \\
      --baseline test.lead --json"""

NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}


class Rouge:
    """Scores of every article.

    Attributes:
        each: (articles, 3) from 0 to 1, in the order of :data:`NAMES`.
    """

    def __init__(self, each: np.ndarray) -> None:
        self.each = each

    def scores(self, samples: np.ndarray) -> Dict[str, np.ndarray]:
        """Means over each sample, in percent; see :class:`Metric`."""
        means = 100 * self.each[samples].mean(1)  # (samples, 3)
        return {name: means[:, position] for position, name in enumerate(NAMES.values())}


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="score_summaries.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("hypotheses", metavar="FILE", help="a summary a line")
    parser.add_argument(
        "--references", required=True, metavar="JSONL", help='{"summaries": [...]} a line'
    )
    parser.add_argument(
        "--baseline",
        metavar="FILE",
        help="also print how much better the summaries are than FILE's",
    )
    parser.add_argument("--samples", type=int, default=1000, help="for intervals (default 1000)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser


def rouge(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Rouge:
    """The scores of all summaries.

    Raises:
        PluginError: the package is not installed.
    """
    try:
        from rouge_score.rouge_scorer import RougeScorer
    except ImportError:
        raise PluginError(
            "ROUGE needs the package rouge-score. Install it: pip install 'specdec-plugin[rouge]'."
        ) from None
    scorer = RougeScorer(list(NAMES), use_stemmer=True)
    rows = []
    pairs = zip(hypotheses, references)
    for hypothesis, wanted in Progress(pairs, total=len(hypotheses), unit="summary", desc="rouge"):
        best = scorer.score_multi(wanted, hypothesis)
        rows.append([best[name].fmeasure for name in NAMES])
    return Rouge(np.array(rows))


def read_references(path: str) -> List[List[str]]:
    """The summaries of each article."""
    found = []
    for number, record in enumerate(read_records(path), start=1):
        where = f"Line {number:,} of {path}"
        found.append(texts_of(record, "summaries", where))
        if not found[-1]:
            raise PluginError(f"{where} has no summary. Give each article one.")
    if not found:
        raise PluginError(f"{path} is empty. Give at least one summary.")
    return found


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    if args.samples < 0:
        raise PluginError(f"--samples {args.samples}: give at least 0.")
    references = read_references(args.references)
    scored: List[Rouge] = []
    for path in filter(None, (args.hypotheses, args.baseline)):
        lines = read_lines(path)
        check_parallel(path, args.references, len(lines), len(references))
        scored.append(rouge(lines, references))
    metrics: List[Metric] = [scored[0]]
    if args.baseline:
        metrics.append(Difference(scored[0], scored[1]))
    found = {}
    for metric in metrics:
        found.update(estimate(metric, len(references), args.samples))
    if args.json:
        scores = for_json(found, args.samples)
        settings = {"samples": args.samples, "stemmer": True}
        result = {"sentences": len(references), "settings": settings, "scores": scores}
        print(json.dumps(result, indent=2))
        return
    for name, (score, low, high) in found.items():
        interval = f"   {low:6.2f} to {high:6.2f}" if args.samples else ""
        print(f"{name:<12}  {score:6.2f}{interval}")


if __name__ == "__main__":
    main()
