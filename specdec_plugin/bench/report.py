"""From timings to figures: latency, speed-ups, acceptance, BLEU, and what equals greedy."""

import platform
import statistics
from typing import Any, Dict, List, Optional, Sequence

import sacrebleu
import torch

from .methods import Method
from .timing import Timing

#: What speed-ups are given against, where it was timed.
AGAINST = ("fairseq beam 5", "fairseq beam 1", "greedy")


def machine() -> Dict[str, Any]:
    """What a reader must know to compare figures."""
    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            names = [line.split(":", 1)[1].strip() for line in lines if "model name" in line]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def summarise(
    methods: Sequence[Method],
    timings: Dict[str, Timing],
    texts: Dict[str, List[str]],
    references: Optional[List[str]],
) -> List[Dict[str, Any]]:
    """One row of figures for each method.

    Args:
        methods: what was timed.
        timings: from :func:`run_interleaved`.
        texts: by method name, detokenised hypotheses in the order of the input.
        references: detokenised references, or None for no BLEU.

    Returns:
        for each method its latencies in milliseconds a batch, the speed-up against
        each of :data:`AGAINST` (of all time, and the median over batches), accepted
        tokens, BLEU, and how many hypotheses equal fairseq's greedy ones.
    """
    return [_row(method, timings, texts, references) for method in methods]


def _row(
    method: Method,
    timings: Dict[str, Timing],
    texts: Dict[str, List[str]],
    references: Optional[List[str]],
) -> Dict[str, Any]:
    timing = timings[method.name]
    milliseconds = sorted(1000 * seconds for seconds in timing.seconds)
    row: Dict[str, Any] = {"method": method.name, "seconds": sum(timing.seconds)}
    for percent in (50, 90, 99):
        row[f"p{percent}_ms"] = milliseconds[
            min(len(milliseconds) - 1, len(milliseconds) * percent // 100)
        ]
    for other in AGAINST:
        if other in timings:
            row[f"total speed-up over {other}"] = sum(timings[other].seconds) / row["seconds"]
            ratios = [a / b for a, b in zip(timings[other].seconds, timing.seconds)]
            row[f"median speed-up over {other}"] = statistics.median(ratios)
    row["tokens"] = sum(len(each["tokens"]) for each in timing.hypotheses.values())
    if method.trace is not None:
        row["accepted tokens"] = method.trace.accepted_tokens
        row["acceptance by position"] = method.trace.acceptance_by_position()
        row["seconds by part"] = dict(method.trace.seconds)
    if "fairseq beam 1" in timings:
        greedy = timings["fairseq beam 1"].hypotheses
        row["equal to fairseq greedy"] = sum(
            torch.equal(each["tokens"].cpu(), greedy[name]["tokens"].cpu())
            for name, each in timing.hypotheses.items()
        )
    row["sentences"] = len(timing.hypotheses)
    if references is not None:
        metric = sacrebleu.metrics.BLEU()
        row["bleu"] = metric.corpus_score(texts[method.name], [references]).score
        row["bleu signature"] = str(metric.get_signature())
    return row


def markdown(rows: Sequence[Dict[str, Any]]) -> str:
    """The figures as a table."""
    columns = ["method", "p50 ms", "p90 ms", "p99 ms"]
    columns += [f"× {other}" for other in AGAINST if f"median speed-up over {other}" in rows[0]]
    columns += ["accepted tokens", "BLEU", "equal to fairseq greedy"]
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(_cells(row)) + " |" for row in rows]
    signatures = {row["bleu signature"] for row in rows if "bleu signature" in row}
    notes = ["", "× is the median over batches of the other's time divided by this one's."]
    notes += [f"sacreBLEU {signature}" for signature in sorted(signatures)]
    return "\n".join(lines + notes)


def _cells(row: Dict[str, Any]) -> List[str]:
    cells = [row["method"], *(f"{row[f'p{percent}_ms']:.1f}" for percent in (50, 90, 99))]
    for other in AGAINST:
        if f"median speed-up over {other}" in row:
            cells.append(f"{row[f'median speed-up over {other}']:.2f}")
    cells.append(f"{row['accepted tokens']:.2f}" if "accepted tokens" in row else "")
    cells.append(f"{row['bleu']:.1f}" if "bleu" in row else "")
    same = row.get("equal to fairseq greedy")
    cells.append("" if same is None else f"{same:,} of {row['sentences']:,}")
    return cells
