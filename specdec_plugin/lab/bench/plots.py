"""Figures drawn from the rows of a report.

After Santilli et al. (2023), Xia et al. (2023) and Ge et al. (2022).
"""

import math
import os
import statistics
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from . import sweeps
from .edits import indices_by_bin
from .report import AGAINST, Row, speed_ups

#: Okabe and Ito's colours, which colour-blind readers can distinguish; the markers are for grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = "osD^vPX"
STYLE: Any = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#DDDDDD",
    "axes.axisbelow": True,
    "svg.fonttype": "none",
}


def plot_distribution(
    seconds: Mapping[str, Sequence[float]], folder: str, unit: str = "sentences"
) -> List[str]:
    """Speed-ups by batch, as one histogram for each method (Xia et al., 2023, Figure 4).

    Args:
        seconds: by method, of the same batches.
        folder: where the figure goes.
        unit: what a batch is called.

    Returns:
        the files, PNG and SVG; none without a baseline and another method.
    """
    base = next((name for name in AGAINST if name in seconds), None)
    if base is None or len(seconds) < 2:
        return []
    ratios = {name: speed_ups(seconds[base], own) for name, own in seconds.items() if name != base}
    edges = _edges([ratio for each in ratios.values() for ratio in each])
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(6.4, 0.8 + 1.05 * len(ratios)), layout="constrained")
        axes = figure.subplots(len(ratios), 1, sharex=True, squeeze=False)
        for index, (name, each) in enumerate(ratios.items()):
            _histogram(axes[index][0], name, each, edges, COLOURS[index % len(COLOURS)])
        beyond = max(map(max, ratios.values())) > edges[-1]
        note = "; the last bar holds all beyond" if beyond else ""
        axes[-1][0].set_xlabel(f"speed-up over {base} (times as fast{note})")
        figure.supylabel(f"{unit}, %", fontsize=9)
        return _save(figure, folder, "speedup-distribution")


def _edges(ratios: Sequence[float]) -> Any:
    """At most 40 bins of a round width that hold all but the greatest hundredth."""
    longest = max(float(np.percentile(ratios, 99)) * 1.05, 1.5)
    least = max(longest / 40, 0.1)
    magnitude = 10 ** math.floor(math.log10(least))
    width = next(each * magnitude for each in (1, 2, 2.5, 5, 10) if each * magnitude >= least)
    return np.arange(0, longest + width, width)


def _histogram(axis: Any, name: str, ratios: Sequence[float], edges: Any, colour: str) -> None:
    shown = np.minimum(ratios, edges[-1] - 1e-9)  # the few beyond the axis are in the last bin
    axis.hist(shown, edges, weights=np.full(len(ratios), 100 / len(ratios)), color=colour)
    median = statistics.median(ratios)
    axis.axvline(median, color="black", linewidth=1)
    axis.set_title(f"{name}: median {median:.2f}×", fontsize=9, loc="left", pad=3)
    axis.set_xlim(0, edges[-1])
    axis.grid(axis="x", visible=False)
    axis.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def plot_edit_ratios(
    ratios: Sequence[float], seconds: Mapping[str, Sequence[float]], folder: str
) -> List[str]:
    """Each sentence's speed-up against its edit ratio (Ge et al., 2022, Figure 5), with medians.

    Args:
        ratios: of each sentence.
        seconds: by method, of the same sentences.
        folder: where the figure goes.

    Returns:
        the files, PNG and SVG; none without a baseline and another method.
    """
    bases = [name for name in ("fairseq beam 5", "greedy") if name in seconds]
    bases = bases or [name for name in AGAINST if name in seconds]
    shown = {base: [each for each in seconds if each not in _upto(base)] for base in bases}
    bases = [base for base in bases if shown[base]]
    if not bases:
        return []
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(4.2 * len(bases), 3.6), layout="constrained")
        axes = figure.subplots(1, len(bases), squeeze=False)[0]
        for axis, base in zip(axes, bases):
            for index, name in enumerate(seconds):
                if name in shown[base]:
                    _cloud(axis, ratios, speed_ups(seconds[base], seconds[name]), name, index)
            axis.set_xlabel("edit ratio (lines: medians)")
            axis.set_title(f"× {base}", fontsize=9)
            _times(axis)
    return _finish(figure, axes, folder, "edit-ratio")


def _upto(base: str) -> Sequence[str]:
    """The baseline, and those that are slower."""
    return AGAINST[: AGAINST.index(base) + 1]


def _cloud(axis: Any, ratios: Sequence[float], ups: Sequence[float], name: str, index: int) -> None:
    """A point for each sentence, and a line through the medians of the bins."""
    look = _look(index)
    axis.scatter(ratios, ups, s=6, alpha=0.35, linewidths=0, color=look["color"], rasterized=True)
    medians = [
        [statistics.median(each[one] for one in indices) for each in (ratios, ups)]
        for indices in indices_by_bin(ratios).values()
    ]
    axis.plot(*zip(*medians), **look, markersize=4, label=name)


def plot_block_sizes(rows: Sequence[Row], folder: str) -> List[str]:
    """Accepted tokens, BLEU and speed-up against k (Xia et al., 2023, Table 2).

    Args:
        rows: of a report with ``--sweep k``.
        folder: where the figure goes.

    Returns:
        the files, PNG and SVG.
    """
    lines = sweeps.swept_rows(rows, "block_size")
    panels = [_panel("accepted tokens", "accepted tokens an iteration")]
    panels.append(_panel("bleu", "sacreBLEU"))
    panels += _speed_up_panels(rows)[:1]
    figure, axes = _panels(lines, "block_size", panels, "block size k (tokens)")
    greedy = next((row for row in rows if row["method"] == "greedy"), None)
    for axis, (key, _, _) in zip(axes, _drawn(lines, panels)):
        if greedy is not None and key == "bleu":
            axis.axhline(greedy[key], color="black", linestyle=":", label="greedy")
    return _finish(figure, axes, folder, "sweep-k")


def plot_grid(rows: Sequence[Row], folder: str) -> List[str]:
    """Accepted tokens, BLEU and speed-up by β and τ, a row of panels for each method.

    After Table 3 of Xia et al. (2023).

    Args:
        rows: of a report with ``--sweep beta-tau``.
        folder: where the figure goes.

    Returns:
        the files, PNG and SVG.
    """
    panels = [("accepted tokens", "accepted tokens an iteration", "{:.2f}")]
    panels.append(("bleu", "sacreBLEU", "{:.1f}"))
    panels += [(key, title, "{:.2f}×") for key, title, _ in _speed_up_panels(rows)[:1]]
    by_method = sweeps.swept_rows(rows, "top_beta")
    drawn = [panel for panel in panels if sweeps.grid(rows, panel[0])]
    with matplotlib.rc_context({**STYLE, "axes.grid": False}):
        size = 3.2 * len(drawn), 3.0 * len(by_method)
        figure = Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(by_method), len(drawn), squeeze=False)
        for line, (name, own) in zip(axes, by_method.items()):
            prefix = f"{name}\n" if len(by_method) > 1 else ""
            line[0].set_ylabel(f"{prefix}tolerance τ (nats)")
            for axis, (key, title, form) in zip(line, drawn):
                _heat(axis, sweeps.grid(own, key), title, form)
        return _save(figure, folder, "sweep-beta-tau")


def _heat(axis: Any, values: Dict[int, Dict[float, float]], title: str, form: str) -> None:
    betas = list(values)
    taus = sorted({tau for each in values.values() for tau in each})
    cells = np.array([[values[beta][tau] for beta in betas] for tau in taus])
    image = axis.imshow(cells, cmap="cividis", aspect="auto", origin="lower")
    for (row, column), value in np.ndenumerate(cells):
        colour = "black" if image.norm(value) > 0.5 else "white"
        axis.text(column, row, form.format(value), ha="center", va="center", color=colour)
    axis.set_xticks(range(len(betas)), [str(beta) for beta in betas])
    axis.set_yticks(range(len(taus)), ["any" if tau == math.inf else f"{tau:g}" for tau in taus])
    axis.set_xlabel("top-β (tokens)")
    axis.set_title(title, fontsize=9)
    axis.spines[:].set_visible(False)


def plot_batch_sizes(rows: Sequence[Row], folder: str) -> List[str]:
    """Time, speed-ups and memory against the batch size.

    After Figure 5 of Xia et al. (2023) and Figure 6 of Ge et al. (2022).

    Args:
        rows: of a report with ``--sweep batch``.
        folder: where the figure goes.

    Returns:
        the files, PNG and SVG.
    """
    panels = [_SENTENCE_MS, *_speed_up_panels(rows)]
    panels.append(("memory in MB", "peak memory, MB", lambda row: row["memory in MB"]["peak"]))
    figure, axes = _doubling(rows, "batch size", panels, "sentences a batch")
    return _finish(figure, axes, folder, "sweep-batch")


def plot_threads(rows: Sequence[Row], folder: str) -> List[str]:
    """Time a sentence and speed-ups by the number of threads (Santilli et al., 2023, Figure 3).

    Args:
        rows: of a report with ``--sweep threads``.
        folder: where the figure goes.

    Returns:
        the files, PNG and SVG.
    """
    over = [_speed_up_panel(other) for other in ("greedy", "fairseq beam 1")]
    figure, axes = _doubling(rows, "threads", [_SENTENCE_MS, *over], "threads")
    return _finish(figure, axes, folder, "sweep-threads")


def _doubling(
    rows: Sequence[Row], across: str, panels: "Sequence[Panel]", label: str
) -> Tuple[Any, List[Any]]:
    """:func:`_panels` over a few whole numbers that double as a rule; the first is of times."""
    lines: Dict[str, List[Row]] = {}
    for row in sorted(rows, key=lambda row: row[across]):
        lines.setdefault(row["method"], []).append(row)
    figure, axes = _panels(lines, across, panels, label)
    values = sorted({row[across] for row in rows})
    for axis in axes:
        axis.set_xscale("log", base=2)
        axis.set_xticks(values, [str(value) for value in values])
        axis.minorticks_off()
    _times(axes[0])
    return figure, axes


def _times(axis: Any) -> None:
    """Times and ratios of them: equal factors are equally far from each other."""
    axis.set_yscale("log")
    axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.yaxis.set_minor_formatter(NullFormatter())


#: The key that rows must have, the axis' label, and the value.
Panel = Tuple[str, str, Callable[[Row], float]]


def _panel(key: str, label: str) -> Panel:
    return key, label, lambda row: float(row[key])


_SENTENCE_MS: Panel = ("seconds", "ms a sentence, mean", sweeps.sentence_ms)


def _speed_up_panel(other: str) -> Panel:
    return _panel(f"median speed-up over {other}", f"× {other}, median")


def _speed_up_panels(rows: Sequence[Row]) -> List[Panel]:
    return [
        _speed_up_panel(other)
        for other in AGAINST
        if any(f"median speed-up over {other}" in row for row in rows)
    ]


def _drawn(lines: Mapping[str, Sequence[Row]], panels: Sequence[Panel]) -> List[Panel]:
    rows = [row for each in lines.values() for row in each]
    return [panel for panel in panels if any(panel[0] in row for row in rows)]


def _panels(
    lines: Mapping[str, Sequence[Row]], across: str, panels: Sequence[Panel], label: str
) -> Tuple[Any, List[Any]]:
    """One panel for each figure side by side, a line for each method, against ``across``."""
    drawn = _drawn(lines, panels)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(3.2 * len(drawn), 3.0), layout="constrained")
        axes = figure.subplots(1, len(drawn), squeeze=False)
        for axis, (key, title, value) in zip(axes[0], drawn):
            for index, (name, rows) in enumerate(lines.items()):
                points = [(row[across], value(row)) for row in rows if key in row]
                axis.plot(
                    *zip(*points),
                    **_look(index),
                    markersize=4,
                    label=name,
                )
            axis.set_xlabel(label)
            axis.set_title(title, fontsize=9)
            axis.xaxis.set_major_locator(MaxNLocator(integer=True))
        return figure, list(axes[0])


def _look(index: int) -> Dict[str, str]:
    """How a line is drawn; with more lines than colours, other markers go with them, and dashes."""
    again, colour = divmod(index, len(COLOURS))
    return {
        "color": COLOURS[colour],
        "marker": MARKERS[(colour + again) % len(MARKERS)],
        "linestyle": "--" if again % 2 else "-",
    }


def _finish(figure: Any, axes: Sequence[Any], folder: str, name: str) -> List[str]:
    """Put one legend of all panels below them, and save."""
    entries: Dict[str, Any] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels()):
            entries.setdefault(label, handle)
    with matplotlib.rc_context(STYLE):
        figure.legend(
            list(entries.values()),
            list(entries),
            loc="outside lower center",
            ncols=min(len(entries), 2 * len(axes)),
            frameon=False,
        )
        return _save(figure, folder, name)


def _save(figure: Any, folder: str, name: str) -> List[str]:
    paths = [os.path.join(folder, f"{name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    return paths
