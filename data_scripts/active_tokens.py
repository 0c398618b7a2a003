"""Active tokens by the number of clusters, from cluster files (Amer et al., 2022, Figure 2)."""

import argparse
from typing import Any, Dict, List, Optional, Sequence

from example_results import add_origin, named, origin_of, write_results
from matplotlib.figure import Figure

from specdec_plugin.lab.bench.plots import COLOURS, MARKERS
from specdec_plugin.vocab.cluster_file import load_clusters

DESCRIPTION = """\
Write which part of the vocabulary is active in the largest cluster, and on average, for files of
specdec-cluster-vocab, and draw both against the number of clusters: a line for each text that
states were recorded from."""

EXAMPLE = """\
example:
  python data_scripts/active_tokens.py results/clusters.json --figure clusters.png \\
      --command "run.sh CORPUS OUTPUT" "source and target=both-100.pt" "target=target-100.pt" """

AT_MOST, MEAN = "active at most in %", "active on average in %"


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="active_tokens.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output", metavar="FILE", help="of results, to write")
    parser.add_argument("--figure", required=True, metavar="PNG", help="to draw")
    add_origin(parser)
    parser.add_argument("files", nargs="+", metavar="TEXT=CLUSTERS", help="what is known, a file")
    return parser


def row_of(text: str, path: str) -> Dict[str, Any]:
    """What a cluster file has, in percent of the vocabulary.

    Raises:
        PluginError: it is no cluster file.
    """
    file = load_clusters(path)
    found = file.clusters
    return {
        "text": text,
        "clusters": found.size,
        AT_MOST: 100 * found.largest / found.vocabulary,
        MEAN: 100 * found.active_share,
        "K": file.top_k,
        "states": file.note,
    }


def draw(rows: Sequence[Dict[str, Any]]) -> Figure:
    """A line for each text."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    texts = list(dict.fromkeys(row["text"] for row in rows))
    for axis, key in zip(figure.subplots(1, 2), (AT_MOST, MEAN)):
        for text, colour, marker in zip(texts, COLOURS, MARKERS):
            line = sorted((row["clusters"], row[key]) for row in rows if row["text"] == text)
            axis.plot(*zip(*line), color=colour, marker=marker, label=text)
        axis.set(xlabel="clusters", ylabel=key)
        axis.set_ylim(bottom=0)
        axis.grid(color="#DDDDDD")
        axis.legend(frameon=False)
    return figure


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    rows: List[Dict[str, Any]] = [row_of(*named(each)) for each in args.files]
    result = {**origin_of(args.command, args.setting), "rows": rows}
    write_results(args.output, result)
    draw(rows).savefig(args.figure, dpi=150, metadata={"Software": None})
    print(f"{args.output}: {len(rows)} rows")


if __name__ == "__main__":
    main()
