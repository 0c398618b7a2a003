"""Speed-up against accepted tokens, from runs of specdec-bench (Stern et al., 2018, Figure 4)."""

import argparse
import os
from typing import Dict, List, NamedTuple, Optional, Sequence

from benchruns import read_run
from matplotlib.figure import Figure

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.plots import COLOURS, MARKERS

DESCRIPTION = """\
Draw how much faster than our greedy decoding each run of specdec-bench found a method
to be, against its accepted tokens an iteration, and label each point with its k. What
the runs have in common, such as a task, is one line of the figure."""

EXAMPLE = """\
example:
  python data_scripts/plot_speedups.py --output curve.png \\
      --series translation work/bench2 work/bench4 work/bench8 \\
      --series super-resolution photos/bench2 photos/bench4 photos/bench8"""

#: The figure of ``results.json`` that is drawn.
SPEED_UP = "median speed-up over greedy"


class Point(NamedTuple):
    """What a run found."""

    accepted: float
    speed_up: float
    block_size: int


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="plot_speedups.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--output", required=True, metavar="FILE", help="ending in .png or .svg")
    parser.add_argument("--method", default="blockwise", help="default %(default)s")
    parser.add_argument(
        "--series",
        nargs="+",
        action="append",
        required=True,
        metavar=("NAME", "FOLDER"),
        help="runs that are one line: what it is called, and their --output",
    )
    return parser


def read_point(folder: str, method: str) -> Point:
    """What the run in a folder found of a method.

    Raises:
        PluginError: it is no finished run, or lacks the method or greedy.
    """
    row = read_run(folder).get(method, {})
    if SPEED_UP not in row:
        raise PluginError(
            f"The run in {folder} does not compare {method} with greedy: run specdec-bench with "
            "both in --methods."
        )
    return Point(row["accepted tokens"], row[SPEED_UP], 1 + len(row["acceptance by position"]))


def draw(series: Dict[str, List[Point]], method: str) -> Figure:
    """A line for each series."""
    figure = Figure(figsize=(5, 3.4), layout="constrained")
    axis = figure.subplots()
    for (name, points), colour, marker in zip(series.items(), COLOURS, MARKERS):
        points = sorted(points)
        x, y = [each.accepted for each in points], [each.speed_up for each in points]
        axis.plot(x, y, color=colour, marker=marker, label=name)
        for each in points:
            axis.annotate(
                f"k={each.block_size}",
                (each.accepted, each.speed_up),
                xytext=(4, -10),
                textcoords="offset points",
                fontsize=8,
            )
    axis.axhline(1, color="black", linewidth=0.8)
    axis.set(xlabel="accepted tokens an iteration", ylabel=f"{method}: times as fast as greedy")
    axis.grid(color="#DDDDDD")
    axis.legend(frameon=False)
    return figure


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = get_parser()
    args = parser.parse_args(argv)
    if len(args.series) > len(MARKERS):
        parser.error(f"--series: more than {len(MARKERS)} lines could not be told apart")
    if any(len(each) < 2 for each in args.series):
        parser.error("--series: give a name and at least one folder")
    series = {
        name: [read_point(folder, args.method) for folder in folders]
        for name, *folders in args.series
    }
    os.makedirs(os.path.dirname(args.output) or ".", exist_ok=True)
    draw(series, args.method).savefig(args.output, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
