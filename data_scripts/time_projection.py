"""The time of a vocabulary projection, in full and by clusters (Amer et al., 2022, section 3)."""

import argparse
import itertools
import shlex
import statistics
import sys
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch
import torch.nn.functional as F
from example_results import origin_of, speed_rows, write_results
from torch import Tensor

from specdec_plugin.engine.linear import NativeLinear
from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress
from specdec_plugin.vocab.clustered_linear import ClusteredLinear
from specdec_plugin.vocab.clusters import Clusters

DESCRIPTION = """\
Project random states on random vocabularies of each size: with PyTorch, with our
kernels in full, and by clusters, finding the nearest one included. The ways take
turns, other data passes through the caches in between, and medians count. What is
likely does not matter to the time, only how much of the vocabulary is active."""

EXAMPLE = """\
example:
  OMP_NUM_THREADS=2 python data_scripts/time_projection.py --symbols 128000 250000 --dim 512 1024"""

#: Clusters that states are near to; the others only have to be compared with.
USED = 8
#: Numbers that pass through the caches between two calls: 96 MB.
BETWEEN = 24 << 20

#: What is timed, and its name in the table.
WAYS = {"torch": "PyTorch", "full": "full", "clusters": "clusters"}

Way = Callable[[Tensor], object]


class Case(NamedTuple):
    """What is timed together."""

    symbols: int
    dim: int
    active: float
    clusters: int


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="time_projection.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    usual = "(default: %(default)s)"
    parser.add_argument(
        "--symbols",
        type=int,
        nargs="+",
        default=[128_000, 250_000],
        help=f"of the vocabulary {usual}",
    )
    parser.add_argument(
        "--dim", type=int, nargs="+", default=[512, 1024], help=f"widths of states {usual}"
    )
    parser.add_argument(
        "--active", type=float, default=0.16, help="share of the vocabulary (default: %(default)s)"
    )
    parser.add_argument("--clusters", type=int, default=2000, help=f"of states {usual}")
    parser.add_argument("--rows", type=int, default=1, help="states a call (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=41, help=f"timed calls {usual}")
    parser.add_argument("--output", metavar="FILE", help="for the figures, as JSON")
    return parser


def random_clusters(case: Case, generator: torch.Generator) -> Clusters:
    """Far from each other; the first have random tokens, the others one."""
    size = round(case.active * case.symbols)
    drawn = [torch.randperm(case.symbols, generator=generator)[:size] for _ in range(USED)]
    tokens = [each.sort().values.int() for each in drawn]
    others = case.clusters - USED
    sizes = torch.tensor([0] + [size] * USED + [1] * others)
    centroids = torch.randn(case.clusters, case.dim, generator=generator).half()
    return Clusters(
        centroids,
        centroids.float().square().sum(1),
        sizes.cumsum(0),
        torch.cat([*tokens, torch.zeros(others, dtype=torch.int32)]),
        case.symbols,
    )


def measure(ways: Dict[str, Way], states: Sequence[Tensor]) -> Dict[str, float]:
    """The median seconds of each way."""
    between = torch.ones(BETWEEN)
    times: Dict[str, List[float]] = {name: [] for name in ways}
    for state in states:
        for name, way in ways.items():
            between.sum()
            begin = time.perf_counter()
            way(state)
            times[name].append(time.perf_counter() - begin)
    return {name: statistics.median(each) for name, each in times.items()}


def time_case(case: Case, rows: int, repeats: int) -> Dict[str, float]:
    """The median seconds of PyTorch, our full product, and that by clusters."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(case.symbols, case.dim, generator=generator)
    clusters = random_clusters(case, generator)
    near = torch.randint(0, USED, (repeats, rows), generator=generator)
    noise = 0.1 * torch.randn(repeats, rows, case.dim, generator=generator)
    full = NativeLinear([weight], None, torch.float32)
    gathered = ClusteredLinear(weight, None, clusters)
    ways: Dict[str, Way] = {
        "torch": lambda states: F.linear(states, weight).logsumexp(1),
        "full": lambda states: full.scores(states, -1),
        "clusters": lambda states: gathered.scores(states, -1),
    }
    return measure(ways, list(clusters.centroids[near].float() + noise))


def row_of(case: Case, seconds: Dict[str, float]) -> Dict[str, Any]:
    """A case as a row of the table."""
    times = {f"{name} ms": round(1000 * seconds[way], 4) for way, name in WAYS.items()}
    return {
        "symbols": f"{case.symbols:,}",
        "d": case.dim,
        "active": f"{100 * case.active:.0f} %",
        **times,
        "full ÷ clusters": seconds["full"] / seconds["clusters"],
    }


def check(args: argparse.Namespace) -> None:
    """Refuse what cannot be measured."""
    if args.clusters < USED or not 0 < args.active <= 1:
        raise PluginError(
            f"--clusters takes {USED} or more, and --active a share above 0, up to 1."
        )
    if min(*args.symbols, *args.dim, args.rows, args.repeats) < 1:
        raise PluginError("--symbols, --dim, --rows and --repeats take 1 or more.")


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    argv = sys.argv[1:] if argv is None else argv
    args = get_parser().parse_args(argv)
    check(args)
    cases = [
        Case(symbols, dim, args.active, args.clusters)
        for symbols, dim in itertools.product(args.symbols, args.dim)
    ]
    rows = [
        row_of(case, time_case(case, args.rows, args.repeats))
        for case in Progress(cases, unit="case", disable=len(cases) < 2)
    ]
    found = {**origin_of(shlex.join(["time_projection.py", *argv]), []), "rows": rows}
    found["settings"] = {**vars(args), "threads": torch.get_num_threads()}
    if args.output is not None:
        write_results(args.output, found)
    print("".join(f"| {' | '.join(row)} |\n" for row in speed_rows(rows, list(rows[0]))))


if __name__ == "__main__":
    main()
