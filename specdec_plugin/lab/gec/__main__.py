"""``specdec-gec-score``: scores of corrected or simplified sentences, with intervals."""

import argparse
import json
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ...fairseq_compat.interrupts import console_program
from ...progress import Progress
from .annotators import EditCounts
from .bootstrap import Difference, Estimate, Metric, estimate, for_json
from .command_line import build_parser, check_numbers, metric_names
from .corpus import Corpus, read_corpus
from .errant import errant_counts, load_errant
from .gleu import Gleu
from .maxmatch import count_sentence
from .sari import Sari


def build_metrics(
    options: argparse.Namespace, corpus: Corpus, errant: Any
) -> List[Tuple[str, Metric]]:
    """The metrics with their statistics, and what is put before their scores' names.

    Args:
        errant: ERRANT's annotator, or None to do without.
    """
    metrics: List[Tuple[str, Metric]] = []
    names = metric_names(options)
    texts = (corpus.sources, corpus.hypotheses)
    if "m2" in names and corpus.annotations is not None:
        progress = Progress(
            zip(*texts, corpus.annotations),
            total=len(corpus.sources),
            unit="sentence",
            desc="m2",
        )
        most = options.max_unchanged_words
        rows = [
            count_sentence(source, hypothesis, edits, most)
            for source, hypothesis, edits in progress
        ]
        metrics.append(("M2 ", EditCounts.of(rows, options.beta)))
    if errant is not None:
        gold: Sequence[Any] = corpus.annotations or list(zip(*corpus.references))
        metrics.append(("ERRANT ", errant_counts(errant, *texts, gold, options.beta)))
    if "gleu" in names:
        metrics.append(("", Gleu.of(*texts, corpus.references, options.gleu_iterations)))
    if "sari" in names:
        average, deletion = options.sari_average, options.sari_deletion
        metrics.append(("", Sari.of(*texts, corpus.references, average, deletion)))
    return metrics


def table(estimates: Dict[str, Estimate], options: argparse.Namespace, sentences: int) -> str:
    """The scores for readers."""
    width = max(map(len, estimates))
    heading = f"{sentences:,} sentences"
    if options.samples:
        heading += f"; {100 * options.confidence:g} % intervals of {options.samples:,} resamples"
    lines = [heading]
    for name, (score, low, high) in estimates.items():
        interval = f"   {low:6.2f} to {high:6.2f}" if options.samples else ""
        lines.append(f"{name:<{width}}  {score:6.2f}{interval}")
    return "\n".join(lines)


def as_json(estimates: Dict[str, Estimate], options: argparse.Namespace, sentences: int) -> str:
    """The scores for programs, with what they depend on."""
    settings = (
        "beta", "max_unchanged_words", "gleu_iterations", "sari_average", "sari_deletion",
        "lower", "samples", "confidence", "seed",
    )  # fmt: skip
    found = {
        "sentences": sentences,
        "settings": {name: getattr(options, name) for name in settings},
        "scores": for_json(estimates, options.samples),
    }
    return json.dumps(found, indent=2)


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    metric_names(options)
    check_numbers(options)
    errant = load_errant() if options.errant else None
    corpus = read_corpus(options, options.hypothesis)
    metrics = build_metrics(options, corpus, errant)
    if options.baseline:
        others = build_metrics(options, read_corpus(options, options.baseline), errant)
        metrics += [
            (prefix, Difference(metric, other))
            for (prefix, metric), (_, other) in zip(metrics, others)
        ]
    sentences = len(corpus.sources)
    estimates: Dict[str, Estimate] = {}
    for prefix, metric in metrics:
        found = estimate(metric, sentences, options.samples, options.confidence, options.seed)
        estimates.update((prefix + name, each) for name, each in found.items())
    print((as_json if options.json else table)(estimates, options, sentences))


if __name__ == "__main__":
    main()
