"""Tables and plots of clustered projections, from runs of specdec-bench (Amer et al., 2022)."""

import argparse
import os
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from benchruns import read_run
from example_results import add_origin, origin_of, write_results
from matplotlib.figure import Figure

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.plots import COLOURS, MARKERS
from specdec_plugin.lab.bench.report import table
from specdec_plugin.vocab.cluster_file import load_clusters

DESCRIPTION = """\
What runs of specdec-bench with --vocab-clusters found, as the paper's tables 2, 3 and 5
(directions.json), the same of drafts (drafts.json), and for one direction by number of clusters, K
and neighbours as its figures 3 and 4 (grid.json, grid.png). A run is named with the cluster file
that it used."""

EXAMPLE = """\
example:
  python data_scripts/table_clusters.py --model model.pt --output results --command run.sh \\
      --directions en-es=bench/es=clusters/es.pt --grid grid/500-3=clusters/es-500-3.pt"""

FULL, CERTIFIED, CLUSTERED = "greedy", "greedy certified", "greedy clustered"
#: Drafts of a copy of the model, scored in full and by clusters, and either with certified output.
DRAFTING = (
    "specdec self",
    "specdec self clustered drafts",
    "specdec self certified",
    "specdec self certified clustered drafts",
)
SPEED_UP = "median speed-up over greedy"
BASE_SPEED_UP = "median speed-up over fairseq beam 1"
#: Of lines, by the number of neighbours.
STYLES = ("-", "--", ":", "-.")


class Table(NamedTuple):
    """What is printed, and kept as rows of a file of results.

    Attributes:
        heads: of the columns.
        cells: of each row.
    """

    heads: List[str]
    cells: List[List[str]]

    def markdown(self) -> str:
        """The table, as text."""
        return table(self.heads, self.cells)

    def rows(self) -> List[Dict[str, str]]:
        """A row without its empty cells, by column."""
        return [{head: cell for head, cell in zip(self.heads, row) if cell} for row in self.cells]


class Run(NamedTuple):
    """What a run found.

    Attributes:
        name: as in the table.
        rows: by method, what specdec-bench found.
        clusters: how many.
        top_k: tokens of each state.
        neighbours: clusters in which they are active.
        active: share of the vocabulary that a cluster has, on average.
        size: bytes of the cluster file.
    """

    name: str
    rows: Dict[str, Dict[str, Any]]
    clusters: int
    top_k: int
    neighbours: int
    active: float
    size: int

    def projection(self, method: str) -> float:
        """Microseconds for each token."""
        row = self.rows[method]
        return float(1e6 * row["seconds by part"]["projection"] / row["tokens"])

    @property
    def same(self) -> float:
        """Percentage of hypotheses by clusters that are those of the full projection."""
        return _same(self.rows[CLUSTERED])

    @property
    def bleu_lost(self) -> float:
        """BLEU of the full projection less that by clusters."""
        return float(self.rows[FULL]["bleu"] - self.rows[CLUSTERED]["bleu"])


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="table_clusters.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", required=True, help="the checkpoint, for its size")
    parser.add_argument(
        "--output", required=True, metavar="DIR", help="folder for results and figures"
    )
    add_origin(parser)
    parser.add_argument(
        "--directions", required=True, nargs="+", metavar="NAME=FOLDER=CLUSTERS", help="for tables"
    )
    parser.add_argument(
        "--grid", nargs="+", default=[], metavar="FOLDER=CLUSTERS", help="for the figures"
    )
    return parser


def run_with(name: str, folder: str, clusters: str) -> Run:
    """What is in the folder of a run, and in the file that it used.

    Raises:
        PluginError: one of them is not there, or is something else.
    """
    rows = read_run(folder)
    if not {FULL, CLUSTERED} <= rows.keys() or "bleu" not in rows[FULL]:
        raise PluginError(
            f"The run in {folder} does not compare clusters with a full projection: run "
            f'specdec-bench with --methods "{FULL},{CLUSTERED}" and --reference.'
        )
    file = load_clusters(clusters)
    found = file.clusters
    choices = found.size, file.top_k, file.neighbours
    return Run(name, rows, *choices, found.active_share, os.path.getsize(clusters))


def directions_table(runs: Sequence[Run], model_size: int) -> Table:
    """The paper's tables 2, 3 and 5: what is active, times, quality, and sizes."""
    heads = [
        "direction", "active", "projection in full (µs a token)", "certified", "by clusters",
        "× greedy (certified)", "× greedy (clusters)", "BLEU", "BLEU by clusters",
        "as in full (certified)", "as in full (clusters)", "memory in full (MB)",
        "memory certified", "memory by clusters", "file (MB)", "of the model",
    ]  # fmt: skip
    cells = []
    for run in runs:
        full, clustered = run.rows[FULL], run.rows[CLUSTERED]
        certified = run.rows.get(CERTIFIED)
        cells.append(
            [
                run.name,
                f"{100 * run.active:.1f} %",
                f"{run.projection(FULL):.0f}",
                f"{run.projection(CERTIFIED):.0f}" if certified else "",
                f"{run.projection(CLUSTERED):.0f}",
                f"{certified[SPEED_UP]:.2f}" if certified else "",
                f"{clustered[SPEED_UP]:.2f}",
                f"{full['bleu']:.2f}",
                f"{clustered['bleu']:.2f}",
                f"{_same(certified):.1f} %" if certified else "",
                f"{run.same:.1f} %",
                _memory(full),
                _memory(certified) if certified else "",
                _memory(clustered),
                f"{run.size / 1e6:.1f}",
                f"{100 * run.size / model_size:.1f} %",
            ]
        )
    return Table(heads, cells)


def drafts_table(runs: Sequence[Run]) -> Table:
    """Methods that draft with a copy of the model; a line for each, in each direction."""
    heads = [
        "direction", "method", "ms a sentence", "× fairseq beam 1", "× greedy", "accepted tokens",
        "hypotheses as fairseq's",
    ]  # fmt: skip
    cells = [
        [
            run.name,
            name,
            f"{row['p50_ms']:.1f}",
            f"{row[BASE_SPEED_UP]:.2f}" if BASE_SPEED_UP in row else "",
            f"{row[SPEED_UP]:.2f}",
            f"{row['accepted tokens']:.1f}",
            f"{_same(row):.1f} %",
        ]
        for run in runs
        for name, row in run.rows.items()
        if name in (FULL, CERTIFIED, *DRAFTING)
    ]
    return Table(heads, cells)


def _same(row: Dict[str, Any]) -> float:
    same = row.get("equal to fairseq greedy", row.get("equal to greedy"))
    return float(100 * same / row["sentences"])


def _memory(row: Dict[str, Any]) -> str:
    """In MB; empty where the system hides it."""
    return f"{row['memory in MB']['peak']:.0f}" if "memory in MB" in row else ""


def grid_table(runs: Sequence[Run]) -> Table:
    """What figures 3 and 4 show."""
    heads = [
        "clusters",
        "K",
        "neighbours",
        "active",
        "projection (µs a token)",
        "× greedy",
        "BLEU lost",
        "as in full",
    ]
    cells = [
        [
            f"{run.clusters:,}",
            str(run.top_k),
            str(run.neighbours),
            f"{100 * run.active:.1f} %",
            f"{run.projection(CLUSTERED):.0f}",
            f"{run.rows[CLUSTERED][SPEED_UP]:.2f}",
            f"{run.bleu_lost:.2f}",
            f"{run.same:.1f} %",
        ]
        for run in runs
    ]
    return Table(heads, cells)


def draw(runs: Sequence[Run]) -> Figure:
    """What is active, speed and quality by the number of clusters; a line for each K and M."""
    figure = Figure(figsize=(12, 3.2), layout="constrained")
    panels = {
        "active, % of the vocabulary": lambda run: 100 * run.active,
        "times as fast as greedy": lambda run: run.rows[CLUSTERED][SPEED_UP],
        "BLEU lost": lambda run: run.bleu_lost,
        "hypotheses as in full, %": lambda run: run.same,
    }
    counts = sorted({run.clusters for run in runs})
    each_k = sorted({run.top_k for run in runs})
    each_m = sorted({run.neighbours for run in runs})
    for axis, (label, value) in zip(figure.subplots(1, len(panels)), panels.items()):
        for m, style in zip(each_m, STYLES):
            for k, colour, marker in zip(each_k, COLOURS, MARKERS):
                line = sorted(
                    (run.clusters, value(run))
                    for run in runs
                    if (run.top_k, run.neighbours) == (k, m)
                )
                name = f"K={k}, neighbours {m}"
                axis.plot(*zip(*line), color=colour, marker=marker, ls=style, label=name)
        axis.set(xlabel="clusters", ylabel=label, xscale="log")
        axis.set_xticks(counts, [f"{count:,}" for count in counts])
        axis.minorticks_off()
        axis.grid(color="#DDDDDD")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, loc="outside lower center", ncols=len(names))
    return figure


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = get_parser()
    args = parser.parse_args(argv)
    for given, parts in ((args.directions, 3), (args.grid, 2)):
        for each in given:
            if each.count("=") < parts - 1:
                parser.error(f"{each}: give {parts} parts with = between them")
    directions = [run_with(*each.rsplit("=", 2)) for each in args.directions]
    grid: List[Run] = [run_with("", *each.rsplit("=", 1)) for each in args.grid]
    tables = {"directions": directions_table(directions, os.path.getsize(args.model))}
    drafted = [run for run in directions if {*DRAFTING} & run.rows.keys()]
    if drafted:
        tables["drafts"] = drafts_table(drafted)
    if grid:
        tables["grid"] = grid_table(grid)
    for name, found in tables.items():
        kept = {**origin_of(args.command, args.setting), "rows": found.rows()}
        path = os.path.join(args.output, f"{name}.json")
        write_results(path, kept)
        print(found.markdown() + "\n")
    if grid:
        path = os.path.join(args.output, "grid.png")
        draw(grid).savefig(path, dpi=150, metadata={"Software": None})


if __name__ == "__main__":
    main()
