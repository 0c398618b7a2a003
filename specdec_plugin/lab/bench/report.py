"""From timings to figures: latency, speed-ups, acceptance, BLEU, equality of hypotheses."""

import platform
import statistics
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np
import sacrebleu
import torch

from ...engine.threads import processors
from .memory import Memory
from .methods import Method
from .repetition import repetition_percent
from .timing import Timing

#: What speed-ups are given against, where it was timed.
AGAINST = ("fairseq beam 5", "fairseq beam 1", "greedy")
PERCENTILES = (50, 90, 99)
Row = Dict[str, Any]


def machine(device: Optional[str] = None) -> Dict[str, Any]:
    """Processor, accelerator and versions, which figures depend on.

    Args:
        device: PyTorch's name of where models were run; None: the CPU.
    """
    found = {
        "processor": _processor(),
        "processors": processors(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if device is not None and torch.device(device).type == "cuda":
        found["accelerator"] = torch.cuda.get_device_name(device)
    return found


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
    memory: Optional[Mapping[str, Memory]] = None,
    gflops: Optional[Mapping[str, Mapping[str, float]]] = None,
    bleu_tokenize: Optional[str] = None,
) -> List[Row]:
    """One row of figures for each method.

    Args:
        methods: what was timed.
        timings: from :func:`.timing.run_interleaved`.
        texts: by method name, detokenised hypotheses in the order of the input.
        references: detokenised references, or None for no BLEU.
        memory: by method name.
        gflops: by method name and part.
        bleu_tokenize: sacreBLEU's tokenizer; None for its own choice.

    Returns:
        a row for each method. It has latencies in milliseconds a batch, and the speed-up against
        each of :data:`AGAINST`, of all time and as the median over batches. Then come
        iterations, accepted tokens and seconds by part. BLEU, percent of repeated tokens, memory
        in MB and operations follow where they are known. The last figure is how many hypotheses
        equal those of ``Method.equal_to``.
    """
    rows = []
    for method in methods:
        timing = timings[method.name]
        row = {"method": method.name, **speed(timing, timings), **_output(method, timings)}
        if method.statistics is not None:
            row["iterations"] = method.statistics.iterations
            row["accepted tokens"] = method.statistics.accepted_tokens
            row["acceptance by position"] = method.statistics.acceptance_by_position()
            row["seconds by part"] = dict(method.statistics.seconds)
        if references is not None:
            metric = sacrebleu.metrics.BLEU(tokenize=bleu_tokenize)
            row["bleu"] = metric.corpus_score(texts[method.name], [references]).score
            row["bleu signature"] = str(metric.get_signature())
        if memory is not None and method.name in memory:
            row["memory in MB"] = memory[method.name].megabytes()
        if gflops is not None and method.name in gflops:
            row["GFLOPs a sentence"] = dict(gflops[method.name])
        rows.append(row)
    return rows


def percentile(values: Sequence[float], percent: int) -> float:
    """A percentile, interpolated between its two neighbours: the 50th is the median.

    Args:
        values: at least one, in any order.
        percent: 0 to 100.
    """
    return float(np.percentile(values, percent))


def values_in(rows: Sequence[Row], key: str) -> List[Any]:
    """The different values of a key: numbers in their order, names in that of the rows."""
    found = list(dict.fromkeys(row[key] for row in rows))
    return found if any(isinstance(value, str) for value in found) else sorted(found)


def speed_ups(other: Sequence[float], own: Sequence[float]) -> List[float]:
    """The other's seconds divided by one's own, batch by batch."""
    return [a / b for a, b in zip(other, own)]


def speed(timing: Timing, timings: Mapping[str, Timing]) -> Row:
    """Latencies, and speed-ups over each of :data:`AGAINST`, of the same batches."""
    milliseconds = [1000 * seconds for seconds in timing.seconds]
    row: Row = {"seconds": sum(timing.seconds)}
    for percent in PERCENTILES:
        row[f"p{percent}_ms"] = percentile(milliseconds, percent)
    for other in AGAINST:
        if other in timings:
            ratios = speed_ups(timings[other].seconds, timing.seconds)
            row[f"total speed-up over {other}"] = sum(timings[other].seconds) / row["seconds"]
            row[f"median speed-up over {other}"] = statistics.median(ratios)
    return row


def _output(method: Method, timings: Mapping[str, Timing]) -> Row:
    found = timings[method.name].hypotheses
    hypotheses = {number: each["tokens"].cpu() for number, each in found.items()}
    row: Row = {
        "sentences": len(hypotheses),
        "tokens": sum(map(len, hypotheses.values())),
        "repetition percent": repetition_percent(
            tokens.tolist()[:-1] for tokens in hypotheses.values()
        ),
    }
    other = next((name for name in method.equal_to if name in timings), None)
    if other is not None:
        theirs = timings[other].hypotheses
        row[_equal_key(other)] = sum(
            torch.equal(tokens, theirs[number]["tokens"].cpu())
            for number, tokens in hypotheses.items()
        )
    return row


#: Begins the keys and columns that count equal hypotheses.
_EQUAL = "equal to "


def _equal_key(other: str) -> str:
    return _EQUAL + ("fairseq greedy" if other == "fairseq beam 1" else other)


#: A column's head, and the text of its cells; a KeyError means an empty cell.
Column = Tuple[str, Callable[[Row], str]]


def table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], texts: Container[int] = (0,)
) -> str:
    """A Markdown table; the columns ``texts`` (counted from 0) are text, the others numbers."""
    aligned = [":---" if index in texts else "---:" for index in range(len(columns))]
    lines = [columns, aligned, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table_of(columns: Sequence[Column], rows: Sequence[Row], texts: Container[int] = (0,)) -> str:
    """A Markdown table of rows of figures; columns without any figure are left out."""
    shown = [column for column in columns if any(known(column[1], row) for row in rows)]
    cells = [[show(row) if known(show, row) else "" for _, show in shown] for row in rows]
    return table([name for name, _ in shown], cells, texts)


def markdown(rows: Sequence[Row]) -> str:
    """The main table, with what its columns mean below."""
    notes = ["× is the median over batches of the other's time divided by this one's."]
    if rows[0].get("batch size", 1) > 1:
        notes.append(f"Milliseconds are those of a batch of {rows[0]['batch size']} sentences.")
    notes.append("Repetition is the share of tokens equal to the token before.")
    signatures = sorted({row["bleu signature"] for row in rows if "bleu signature" in row})
    notes += [f"BLEU is sacreBLEU's, {signature}." for signature in signatures]
    equal = dict.fromkeys(key for row in rows for key in row if key.startswith(_EQUAL))
    columns = [*_COLUMNS, *map(_equal_column, equal)]
    return table_of(columns, rows) + "\n\n" + "\n".join(notes)


def known(show: Callable[[Row], str], row: Row) -> bool:
    """Whether a row has what a column shows."""
    try:
        show(row)
    except KeyError:
        return False
    return True


def _speed_up_column(other: str) -> Column:
    return f"× {other}", lambda row: f"{row[f'median speed-up over {other}']:.2f}"


def _equal_column(key: str) -> Column:
    return key, lambda row: f"{row[key]:,} of {row['sentences']:,}"


METHOD: Column = ("method", lambda row: str(row["method"]))
MEDIAN: Column = ("p50 ms", lambda row: f"{row['p50_ms']:.1f}")
SPEED_UPS: Sequence[Column] = [_speed_up_column(other) for other in AGAINST]
ACCEPTED: Column = ("accepted tokens", lambda row: f"{row['accepted tokens']:.2f}")
#: Of the main table.
_COLUMNS: List[Column] = [
    METHOD,
    MEDIAN,
    ("p90 ms", lambda row: f"{row['p90_ms']:.1f}"),
    ("p99 ms", lambda row: f"{row['p99_ms']:.1f}"),
    ("tokens a second", lambda row: f"{row['tokens'] / row['seconds']:,.0f}"),
    *SPEED_UPS,
    ("iterations a sentence", lambda row: f"{row['iterations'] / row['sentences']:.1f}"),
    ACCEPTED,
    ("BLEU", lambda row: f"{row['bleu']:.1f}"),
    ("repetition", lambda row: f"{row['repetition percent']:.2f}%"),
]


def parts_table(rows: Sequence[Row]) -> Optional[str]:
    """Time by part in percent, of the methods that run in our loop; None without any.

    The time of the projection is also given for each token.
    """
    timed = [row for row in rows if row.get("seconds by part", {}).get("total", 0) > 0]
    if not timed:
        return None
    parts = [part for part in timed[0]["seconds by part"] if part != "total"]
    cells = []
    for row in timed:
        seconds = row["seconds by part"]
        spent = [seconds[part] for part in parts]
        spent.append(seconds["total"] - sum(spent))
        shares = [f"{100 * each / seconds['total']:.0f}" for each in spent]
        projecting = 1e6 * seconds["projection"] / row["tokens"]
        cells.append([row["method"], *shares, f"{projecting:.1f}"])
    return table(["time by part, %", *parts, "rest", "projection, µs a token"], cells)


def memory_table(rows: Sequence[Row]) -> Optional[str]:
    """Memory by part in MB; None where it was not measured."""
    measured = [row for row in rows if "memory in MB" in row]
    if not measured:
        return None
    names = list(measured[0]["memory in MB"])
    cells = [
        [row["method"], *(f"{row['memory in MB'][name]:.1f}" for name in names)] for row in measured
    ]
    return table(["memory, MB", *names], cells) + "\n\n" + MEMORY_NOTE


MEMORY_NOTE = (
    "Verifier and drafter: their weights as PyTorch keeps them. Packed: what else the method keeps "
    "after its first batch, above all weights laid out for its kernels (on a CPU right to 8 MB). "
    "Decoding: the greatest growth of the process above that while it decodes the batches with the "
    "longest sources. Peak: the sum, without PyTorch itself."
)
