"""The time of a vocabulary projection on a GPU, in full and by clusters (Amer et al., 2022)."""

import argparse
import datetime
import itertools
import shlex
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import numpy as np
import torch
import torch.nn.functional as F
from example_results import write_results
from torch import Tensor, nn

from specdec_plugin.engine import TorchBackend
from specdec_plugin.engine.output_projection import OutputProjection
from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.report import machine, table
from specdec_plugin.vocab.clustered_projection import ClusteredProjection
from specdec_plugin.vocab.clusters import Clusters, joined

DESCRIPTION = """\
Find the best token and its log-probability of random states, with random float32 weights: from
the scores of all symbols, and of the active ones. On a GPU the calls are replays of graphs. Each
graph has calls for several states, whose clusters differ, so that weights come from memory and
not from caches. Medians count. The product of all symbols is timed alone, too."""

EXAMPLE = """\
example:
  python data_scripts/projection_speed.py --output projection.json"""

#: Ruled out, as padding is.
SUPPRESSED = 1
#: Calls of a graph, for different states.
CALLS = 8
#: How far log-probabilities may be from those of PyTorch's operators.
APART = 1e-3
#: What is timed.
WAYS = ("full", "product", "clustered")

#: Takes states, (rows, dim).
Way = Callable[[Tensor], Any]
Row = Dict[str, Any]


def numbers(text: str) -> List[int]:
    """Whole numbers above 0, between commas."""
    found = [int(part) for part in text.split(",")]
    if min(found) < 1:
        raise ValueError(text)
    return found


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="projection_speed.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add, help_of = parser.add_argument, "default: %(default)s"
    add("--symbols", type=int, default=128_000, help=help_of)
    add("--dims", type=numbers, default="256,512,1024", help=help_of)
    add("--rows", type=numbers, default="1,8,32,160", help="states a call (default: %(default)s)")
    add("--clusters", type=int, default=1024, help=help_of)
    add("--active-least", type=int, default=1500, help="tokens of a cluster (default: %(default)s)")
    add("--active-most", type=int, default=6000, help=help_of)
    add("--repeats", type=int, default=15, help=help_of)
    add("--device", default="cuda" if torch.cuda.is_available() else "cpu", help=help_of)
    add("--output", help="file for all figures, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    argv = sys.argv[1:] if argv is None else argv
    options = get_parser().parse_args(argv)
    if not 1 <= options.active_least <= options.active_most <= options.symbols:
        raise PluginError("--active-least, --active-most and --symbols rise, from 1 on.")
    if min(options.clusters, options.repeats) < 1:
        raise PluginError("--clusters and --repeats take 1 or more.")
    rows = measured(options)
    print(report(rows))
    if options.output is not None:
        written = {
            "machine": machine(options.device),
            "date": datetime.date.today().isoformat(),
            "command": shlex.join(["projection_speed.py", *argv]),
            "settings": vars(options),
            "rows": rows,
        }
        write_results(options.output, written)


@torch.no_grad()
def measured(options: argparse.Namespace) -> List[Row]:
    """The figures of each size."""
    torch.manual_seed(0)
    drawn = np.random.default_rng(0)
    sizes = drawn.integers(options.active_least, options.active_most + 1, options.clusters)
    sets = [np.sort(drawn.choice(options.symbols, size, replace=False)) for size in sizes]
    tokens = joined([each.astype(np.int32) for each in sets])
    rows = []
    for dim in options.dims:
        decoder = nn.Module()
        decoder.output_projection = nn.Linear(dim, options.symbols, False, options.device)
        centroids = torch.randn(options.clusters, dim).half()
        norms = centroids.float().square().sum(1)
        clusters = Clusters(centroids, norms, *tokens, options.symbols)
        for count in options.rows:
            states, active = states_of(clusters, count)
            states = [each.to(options.device) for each in states]
            ways = ways_of(decoder, clusters, states[0])
            found = {way: seconds(ways[way], states, options.repeats) for way in WAYS}
            rows.append({"dim": dim, "rows": count, "active tokens": active, "seconds": found})
    return rows


def states_of(clusters: Clusters, count: int) -> Tuple[List[Tensor], float]:
    """``CALLS`` tensors, (count, dim), and how many tokens are active in a row on average.

    Each row is near a centroid. Those of a tensor differ while there are as many.
    """
    order = torch.randperm(clusters.size).repeat(1 + CALLS * count // clusters.size)
    near = order[: CALLS * count].view(CALLS, count)
    states = clusters.centroids[near].float()
    states += 0.1 * torch.randn_like(states)
    return list(states), clusters.offsets.diff()[near].float().mean().item()


def ways_of(decoder: Any, clusters: Clusters, states: Tensor) -> Dict[str, Way]:
    """What is timed, by :data:`WAYS`.

    Raises:
        PluginError: the clustered projection differs from that of PyTorch's operators.
    """
    full, clustered = OutputProjection(decoder), ClusteredProjection(clusters, decoder)
    plain = ClusteredProjection(clusters, decoder, backend=TorchBackend())
    found, expected = (each.best_of(states, 1.0, SUPPRESSED)[1] for each in (clustered, plain))
    if not torch.allclose(found, expected, atol=APART, rtol=0):
        raise PluginError(f"Log-probabilities are {found.tolist()} and not {expected.tolist()}.")
    return {
        "full": lambda states: full.best_of(states, 1.0, SUPPRESSED),
        "product": lambda states: F.linear(states, decoder.output_projection.weight),
        "clustered": lambda states: clustered.best_of(states, 1.0, SUPPRESSED),
    }


def seconds(way: Way, states: Sequence[Tensor], repeats: int) -> float:
    """The median time of a call."""

    def work() -> None:
        for each in states:
            way(each)

    timed = replays if states[0].is_cuda else calls
    return statistics.median(timed(work, repeats)) / len(states)


def replays(work: Callable[[], None], repeats: int) -> List[float]:
    """The seconds of each replay of a graph of some work."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    graph.replay()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        graph.replay()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1000 for a, b in itertools.pairwise(events)]


def calls(work: Callable[[], None], repeats: int) -> List[float]:
    """The seconds of each run of some work."""
    work()
    found = []
    for _ in range(repeats):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return found


def report(rows: Sequence[Row]) -> str:
    """The figures in Markdown."""
    cells = []
    for row in rows:
        times = row["seconds"]
        cells.append(
            [str(row["dim"]), str(row["rows"]), f"{row['active tokens']:,.0f}"]
            + [f"{1e6 * times[way]:.1f}" for way in WAYS]
            + [f"{times[way] / times['clustered']:.2f}" for way in ("full", "product")]
        )
    columns = ["d", "rows", "active tokens", "full, µs", "product alone, µs", "clustered, µs"]
    return table([*columns, "full ÷ clustered", "product ÷ clustered"], cells, ())


if __name__ == "__main__":
    main()
