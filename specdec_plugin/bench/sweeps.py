"""One figure after another: settings that differ in k, in β and τ, or in the batch size."""

import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ..errors import PluginError
from .methods import RELAXED, reads
from .report import AGAINST, MEMORY_NOTE, Row, table

#: What ``--sweep`` takes.
SWEEPS = ["k", "beta-tau", "batch"]
#: The field that a method must read for a sweep to concern it.
_FIELDS = {"k": "block_size", "beta-tau": "top_beta"}


class Setting(NamedTuple):
    """One line of the report.

    Attributes:
        label: its name there.
        method: what it runs.
        flags: fields of :class:`DecodingConfig`.
        swept: those of ``flags`` that the sweep changes, for the report's rows.
    """

    label: str
    method: str
    flags: Dict[str, Any]
    swept: Dict[str, Any]


def settings(
    names: Sequence[str],
    flags: Dict[str, Any],
    sweep: Optional[str] = None,
    block_sizes: Sequence[int] = (),
    betas: Sequence[int] = (),
    tolerances: Sequence[float] = (),
) -> List[Setting]:
    """What is timed in one run: methods that the sweep concerns several times, others once.

    Args:
        names: methods.
        flags: fields of :class:`DecodingConfig`.
        sweep: one of :data:`SWEEPS`, or None.
        block_sizes: k, for ``k``.
        betas: β, for ``beta-tau``; 1 accepts only the best token, so it needs no τ.
        tolerances: τ, for ``beta-tau``.

    Raises:
        PluginError: the sweep concerns none of the methods.
    """
    changes: List[Dict[str, Any]] = []
    if sweep == "k":
        changes = [{"block_size": k} for k in block_sizes]
    elif sweep == "beta-tau":
        for beta in betas:
            allowed = tolerances if beta > 1 else [math.inf]
            changes += [{"top_beta": beta, "tolerance": tau} for tau in allowed]
    found = []
    for name in names:
        if changes and reads(name, _FIELDS[str(sweep)]):
            found += [_changed(name, flags, change) for change in changes]
        else:
            found.append(Setting(name, name, flags, {}))
    if changes and not any(each.swept for each in found):
        cure = "specdec++" if sweep == "beta-tau" else "specdec"
        raise PluginError(f"--sweep {sweep} concerns none of these --methods; add {cure} to them.")
    return found


def _changed(name: str, flags: Dict[str, Any], change: Dict[str, Any]) -> Setting:
    symbols = {"block_size": "k", "top_beta": "β", "tolerance": "τ"}
    shown = [f"{symbols[field]}={value:g}" for field, value in change.items() if value != math.inf]
    return Setting(", ".join([name, *shown]), name, {**flags, **change}, change)


def swept_rows(rows: Sequence[Row], field: str) -> Dict[str, List[Row]]:
    """By method, the rows of settings that differ in ``field``, in its rising order."""
    found: Dict[str, List[Row]] = {}
    for row in sorted((row for row in rows if field in row), key=lambda row: row[field]):
        found.setdefault(row["base method"], []).append(row)
    return found


def grid(rows: Sequence[Row], key: str) -> Dict[int, Dict[float, float]]:
    """A figure by β and τ; β = 1, which needs no τ, is repeated for every τ."""
    cells = [row for row in rows if RELAXED[0] in row and key in row]
    taus = sorted({row["tolerance"] for row in cells} - {math.inf})
    values: Dict[int, Dict[float, float]] = {}
    for row in cells:
        own = [row["tolerance"]] if row["tolerance"] != math.inf else taus or [math.inf]
        values.setdefault(row["top_beta"], {}).update(dict.fromkeys(own, row[key]))
    return {beta: values[beta] for beta in sorted(values)}


def grid_table(rows: Sequence[Row]) -> str:
    """Accepted tokens and BLEU by β and τ, as in paper 001's Table 3."""
    accepted, bleu = grid(rows, "accepted tokens"), grid(rows, "bleu")
    betas = list(accepted)
    cells = []
    for tau in sorted({tau for each in accepted.values() for tau in each}):
        line = [f"τ = {tau:g}"]
        for beta in betas:
            figure = f"{accepted[beta][tau]:.2f}"
            line.append(f"{figure} / {bleu[beta][tau]:.1f}" if bleu else figure)
        cells.append(line)
    head = "accepted tokens / BLEU" if bleu else "accepted tokens"
    return table([head, *(f"β = {beta}" for beta in betas)], cells)


def batch_tables(rows: Sequence[Row]) -> str:
    """Latency, speed-ups and peak memory by batch size, as in paper 001's Figure 5, Table 14."""
    tables = [
        _by_size(rows, "ms a batch, p50", lambda row: f"{row['p50_ms']:.1f}"),
        _by_size(rows, "ms a sentence, mean", lambda row: f"{sentence_ms(row):.1f}"),
    ]
    for other in AGAINST:
        key = f"median speed-up over {other}"
        if any(key in row for row in rows):
            tables.append(_by_size(rows, f"× {other}", _figure(key)))
    peak = _by_size(rows, "peak memory, MB", lambda row: f"{row['memory in MB']['peak']:.1f}")
    return "\n\n".join([*tables, peak, MEMORY_NOTE])


def sentence_ms(row: Row) -> float:
    """Mean milliseconds a sentence."""
    return 1000 * float(row["seconds"]) / int(row["sentences"])


def _figure(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: f"{row[key]:.2f}"


def _by_size(rows: Sequence[Row], head: str, show: Callable[[Row], str]) -> str:
    sizes = sorted({row["batch size"] for row in rows})
    by_method: Dict[str, Dict[int, str]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["batch size"]] = show(row)
    cells = [[name, *(each[size] for size in sizes)] for name, each in by_method.items()]
    return table([head, *(f"batch of {size}" for size in sizes)], cells)
