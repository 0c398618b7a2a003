"""Settings one after another: k, β and τ, Jacobi guesses, batch sizes, threads, directions."""

import argparse
import itertools
import math
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from ...errors import PluginError
from ...methods.options import choices_of
from ...methods.registry import all_flags
from .methods import reads
from .report import AGAINST, MEMORY_NOTE, Row, known, table, values_in

#: What ``--sweep`` takes.
SWEEPS = ["k", "beta-tau", "jacobi", "batch", "threads", "directions"]
#: The field that a method must read for a sweep to concern it, and a method that does.
_CONCERNS = {
    "k": ("block_size", "specdec"),
    "beta-tau": ("top_beta", "specdec++"),
    "jacobi": ("jacobi_window", "gs-jacobi"),
}


class Direction(NamedTuple):
    """A source language and a target language; None where fairseq finds them, or has none."""

    source: Optional[str]
    target: Optional[str]

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"

    def named(self, path: str) -> str:
        """A path with the languages in the place of {source} and {target}."""
        return path.replace("{source}", str(self.source)).replace("{target}", str(self.target))


def directions(options: argparse.Namespace) -> List[Direction]:
    """Those of a run, one after another.

    Raises:
        PluginError: they are named badly, or not where they should be.
    """
    named, swept = options.directions, options.sweep == "directions"
    if named is not None and not swept:
        raise PluginError(
            f"--directions {named} would have no effect: add --sweep directions, or give -s and -t."
        )
    if not swept:
        return [Direction(options.source_lang, options.target_lang)]
    named = named or options.lang_pairs
    pairs = [] if named is None else [pair.split("-") for pair in named.split(",")]
    if not pairs or any(len(pair) != 2 for pair in pairs):
        raise PluginError(
            "--sweep directions needs pairs of languages: add --directions such as en-es,es-en."
        )
    if len({*map(tuple, pairs)}) < len(pairs):
        raise PluginError(f"--sweep directions: {named} names a direction twice; name each once.")
    if (options.source_lang, options.target_lang) != (None, None):
        raise PluginError(
            f"--sweep directions takes the languages from {named}: leave -s and -t out."
        )
    return [Direction(*pair) for pair in pairs]


class Conditions(NamedTuple):
    """What all methods share while they take turns.

    Attributes:
        size: sentences a batch.
        threads: CPU threads, of PyTorch and of the kernels.
        journal: the file where finished batches are stored.
    """

    size: int
    threads: int
    journal: str = "journal.jsonl"


def conditions(options: argparse.Namespace, direction: Direction) -> List[Conditions]:
    """Those of a direction, one after another: each decodes all sentences with every method."""
    size, threads = options.batch_size, options.threads[0]
    if options.sweep == "batch":
        return [Conditions(each, threads, f"journal-{each}.jsonl") for each in options.batch_sizes]
    if options.sweep == "threads":
        return [Conditions(size, n, f"journal-threads-{n}.jsonl") for n in options.threads]
    if options.sweep == "directions":
        return [Conditions(size, threads, f"journal-{direction}.jsonl")]
    return [Conditions(size, threads)]


class Setting(NamedTuple):
    """One line of the report.

    Attributes:
        label: its name there.
        method: what it runs.
        flags: fields of :func:`...methods.registry.config_class`.
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
        flags: fields of :func:`...methods.registry.config_class`.
        sweep: one of :data:`SWEEPS`, or None.
        block_sizes: k, for ``k``; b, for ``jacobi``.
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
    elif sweep == "jacobi":
        changes = _guesses(block_sizes, int(flags["jacobi_pool"]))
    found = []
    for name in names:
        if changes and reads(name, _CONCERNS[str(sweep)][0]):
            found += [_changed(name, flags, change) for change in changes]
        else:
            found.append(Setting(name, name, flags, {}))
    if changes and not any(each.swept for each in found):
        cure = _CONCERNS[str(sweep)][1]
        raise PluginError(f"--sweep {sweep} concerns none of these --methods; add {cure} to them.")
    return found


def _guesses(block_sizes: Sequence[int], entries: int) -> List[Dict[str, Any]]:
    """Every window, initial guess and b, without the n-gram pool and with it."""
    fields = ("jacobi_window", "jacobi_init", "jacobi_pool", "block_size")
    values = (
        choices_of(all_flags()["jacobi_window"]),
        choices_of(all_flags()["jacobi_init"]),
        sorted({0, entries}),
        block_sizes,
    )
    return [dict(zip(fields, each)) for each in itertools.product(*values)]


#: How a field's value is written in a label; "" leaves it out.
_SHOWN: Dict[str, Callable[[Any], str]] = {
    "block_size": lambda k: f"k={k}",
    "top_beta": lambda beta: f"β={beta}",
    "tolerance": lambda tau: "" if tau == math.inf else f"τ={tau:g}",
    "jacobi_window": str,
    "jacobi_init": str,
    "jacobi_pool": lambda entries: "pool" if entries else "",
}


def _changed(name: str, flags: Dict[str, Any], change: Dict[str, Any]) -> Setting:
    shown = [_SHOWN[field](value) for field, value in change.items()]
    label = ", ".join([name, *filter(None, shown)])
    return Setting(label, name, {**flags, **change}, change)


def swept_rows(rows: Sequence[Row], field: str) -> Dict[str, List[Row]]:
    """By method, the rows of settings that differ in ``field``, in its rising order."""
    found: Dict[str, List[Row]] = {}
    for row in sorted((row for row in rows if field in row), key=lambda row: row[field]):
        found.setdefault(row["base method"], []).append(row)
    return found


def grid(rows: Sequence[Row], key: str) -> Dict[int, Dict[float, float]]:
    """A figure of one method by β and τ; β = 1, which needs no τ, is repeated for every τ."""
    cells = [row for row in rows if "top_beta" in row and key in row]
    taus = sorted({row["tolerance"] for row in cells} - {math.inf})
    values: Dict[int, Dict[float, float]] = {}
    for row in cells:
        own = [row["tolerance"]] if row["tolerance"] != math.inf else taus or [math.inf]
        values.setdefault(row["top_beta"], {}).update(dict.fromkeys(own, row[key]))
    return {beta: values[beta] for beta in sorted(values)}


def grid_tables(rows: Sequence[Row]) -> str:
    """Accepted tokens and BLEU by β and τ, a table a method (Xia et al., 2023, Table 3)."""
    by_method = swept_rows(rows, "top_beta")
    named = len(by_method) > 1
    return "\n\n".join(
        _grid_table(own, f"{name}: " if named else "") for name, own in by_method.items()
    )


def _grid_table(rows: Sequence[Row], prefix: str) -> str:
    """The table of one method; ``prefix`` begins its first cell."""
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
    return table([prefix + head, *(f"β = {beta}" for beta in betas)], cells)


def guess_table(rows: Sequence[Row]) -> str:
    """Accepted tokens and speed-up by the kind of guesses and b."""
    over = "median speed-up over greedy"
    lines: Dict[str, Dict[int, str]] = {}
    for row in rows:
        if "jacobi_window" not in row:
            continue
        pool = "yes" if row["jacobi_pool"] else "no"
        guesses = row["base method"], row["jacobi_window"], row["jacobi_init"], pool
        figure = f"{row['accepted tokens']:.2f}" + (f" / {row[over]:.2f}" if over in row else "")
        lines.setdefault(" | ".join(guesses), {})[row["block_size"]] = figure
    sizes = sorted({size for each in lines.values() for size in each})
    head = ["method | window | initial guess | pool", *(f"b = {size}" for size in sizes)]
    cells = [[name, *(each[size] for size in sizes)] for name, each in lines.items()]
    note = "accepted tokens" + (" / × greedy" if any(over in row for row in rows) else "")
    # The first cell holds four columns, which text aligns to the left.
    return table(head, cells).replace("| :--- |", "| :--- | :--- | :--- | :--- |") + f"\n\n({note})"


def batch_tables(rows: Sequence[Row]) -> str:
    """Latency, speed-ups and memory by batch size (Xia et al., 2023, Figure 5, Table 14)."""
    tables = _speed_tables(rows, "batch size")
    if any(known(_peak, row) for row in rows):
        tables += [_across(rows, "batch size", "peak memory, MB", _peak), MEMORY_NOTE]
    return "\n\n".join(tables)


def _peak(row: Row) -> str:
    return f"{row['memory in MB']['peak']:.1f}"


def thread_tables(rows: Sequence[Row]) -> str:
    """Latency and speed-ups by the number of threads, as in Figure 3 of Santilli et al. (2023)."""
    return "\n\n".join([*_speed_tables(rows, "threads"), THREADS_NOTE])


def direction_table(rows: Sequence[Row]) -> str:
    """Speed-up, iterations and BLEU of each method in each direction (Santilli et al., 2023)."""
    other = next((each for each in AGAINST[1:] if any(each == row["method"] for row in rows)), None)
    figures: Dict[str, Callable[[Row], str]] = {
        "iterations a sentence": lambda row: f"{row['iterations'] / row['sentences']:.1f}",
        "BLEU": lambda row: f"{row['bleu']:.1f}",
    }
    if other is not None:
        figures = {f"× {other}": _figure(f"median speed-up over {other}"), **figures}

    def cell(row: Row) -> str:
        return " / ".join(show(row) if known(show, row) else "–" for show in figures.values())

    return _across(rows, "direction", " / ".join(figures), cell)


THREADS_NOTE = (
    "Each number of threads decodes all sentences again with every method, and speed-ups are over "
    "the other method with the same number of threads."
)


def _speed_tables(rows: Sequence[Row], across: str) -> List[str]:
    tables = [
        _across(rows, across, "ms a batch, p50", lambda row: f"{row['p50_ms']:.1f}"),
        _across(rows, across, "ms a sentence, mean", lambda row: f"{sentence_ms(row):.1f}"),
    ]
    for other in AGAINST:
        key = f"median speed-up over {other}"
        if any(key in row for row in rows):
            tables.append(_across(rows, across, f"× {other}", _figure(key)))
    return tables


def sentence_ms(row: Row) -> float:
    """Mean milliseconds a sentence."""
    return 1000 * float(row["seconds"]) / int(row["sentences"])


def _figure(key: str) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: f"{row[key]:.2f}"


#: By the rows' key: what the tables call a value.
NAMES: Dict[str, Callable[[Any], str]] = {
    "batch size": lambda size: f"batch of {size}",
    "threads": lambda count: f"{count} thread" + "s" * (count > 1),
    "direction": str,
}


def _across(rows: Sequence[Row], key: str, head: str, show: Callable[[Row], str]) -> str:
    """A figure of each method, a column for each value of ``key``."""
    values = values_in(rows, key)
    by_method: Dict[str, Dict[Any, str]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row[key]] = show(row)
    cells = [[name, *(each[value] for value in values)] for name, each in by_method.items()]
    return table([head, *map(NAMES[key], values)], cells)
