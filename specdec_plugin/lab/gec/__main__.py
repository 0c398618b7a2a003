"""``specdec-gec-score``: scores of corrected or simplified sentences, with intervals."""

import argparse
import json
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

from ...errors import PluginError
from ...fairseq_compat.interrupts import console_program
from ...progress import Progress
from ...textfiles import read_lines
from .annotators import EditCounts
from .bootstrap import Difference, Estimate, Metric, estimate
from .errant import errant_counts, load_errant
from .gleu import Gleu
from .m2 import Annotations, Edit, read_m2_file
from .maxmatch import count_sentence
from .sari import Sari

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

Sentences = List[List[str]]


@dataclass
class Corpus:
    """Tokenised sentences, line by line: every list is as long as the others."""

    sources: Sentences
    hypotheses: Sentences
    references: List[Sentences]
    annotations: Optional[List[Annotations]]


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


def read_corpus(options: argparse.Namespace, hypothesis: str) -> Corpus:
    """All files, with one hypothesis; PluginError where their numbers of lines differ."""
    if not (options.source or options.m2):
        raise PluginError("The source is missing. Give --source, or --m2, which has it too.")
    m2 = list(read_m2_file(options.m2)) if options.m2 else []
    annotated = [tokens for tokens, _ in m2]
    sources = read_sentences(options.source) if options.source else annotated
    source_name = options.source or options.m2
    hypotheses = read_sentences(hypothesis)
    references = [read_sentences(path) for path in options.references]
    paths = [hypothesis, *options.references] + ([options.m2] if options.m2 else [])
    lists = [hypotheses, *references] + ([annotated] if options.m2 else [])
    for path, sentences in zip(paths, lists):
        if len(sentences) != len(sources):
            raise PluginError(
                f"{path} has {len(sentences)} sentences, and {source_name} has {len(sources)}. "
                "Give files that belong together line by line, empty lines included."
            )
    if not sources:
        raise PluginError(f"{source_name} is empty. Give at least one sentence.")
    for line, (tokens, ours) in enumerate(zip(annotated, sources), start=1):
        same = " ".join(tokens), " ".join(ours)
        if len({text.lower() for text in same} if options.lower else {*same}) > 1:
            raise PluginError(
                f"Sentence {line} of {options.m2} is '{same[0]}', and of {source_name} "
                f"'{same[1]}'. Give the source that was annotated, tokenised alike."
            )
    corpus = Corpus(
        sources, hypotheses, references, [edits for _, edits in m2] if options.m2 else None
    )
    return lowercased(corpus) if options.lower else corpus


def read_sentences(path: str) -> Sentences:
    """The tokens of each line."""
    return [line.split() for line in read_lines(path)]


def lowercased(corpus: Corpus) -> Corpus:
    """Everything in lower case, without the edits that then change nothing."""
    sources, hypotheses, *references = [
        [[token.lower() for token in tokens] for tokens in sentences]
        for sentences in (corpus.sources, corpus.hypotheses, *corpus.references)
    ]
    annotations: Optional[List[Annotations]] = None
    if corpus.annotations is not None:
        annotations = [
            {number: _lowercased(edits, tokens) for number, edits in annotation.items()}
            for annotation, tokens in zip(corpus.annotations, sources)
        ]
    return Corpus(sources, hypotheses, references, annotations)


def _lowercased(edits: List[Edit], source: List[str]) -> List[Edit]:
    lower = [
        edit._replace(
            replacement=edit.replacement.lower(),
            alternatives=tuple(text.lower() for text in edit.alternatives),
        )
        for edit in edits
    ]
    return [edit for edit in lower if edit.replacement.split() != source[edit.start : edit.end]]


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
    scores = {name: each._asdict() for name, each in estimates.items()}
    if not options.samples:
        scores = {name: {"score": each.score} for name, each in estimates.items()}
    found = {
        "sentences": sentences,
        "settings": {name: getattr(options, name) for name in settings},
        "scores": scores,
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
