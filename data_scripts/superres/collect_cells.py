"""The cells of the table of super-resolution in one file, for the example's README."""

import argparse
import re
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

from pixels import read_patches, same_number, same_sizes
from score_patches import bicubic, scores

from specdec_plugin.errors import PluginError

# isort: split
from collect_runs import labels_of
from example_results import add_origin, origin_of, write_results

DESCRIPTION = """\
Collect what fairseq-generate made of the same patches with several settings. A cell is given as
  LABELS|NAME     such as "k=2;setting=regular|out/regular2"
where NAME.hyp has the enlarged patches, and NAME.log what fairseq-generate printed. The file has a
row for each: its labels, accepted pixels an iteration, and the mean absolute error in levels. A row
more has the error of bicubic enlargement."""

EXAMPLE = """\
example:
  python data_scripts/superres/collect_cells.py results/cells.json --command "run.sh OUTPUT" \\
      --truth patches/test.high --low patches/test.low "k=1;setting=regular|out/greedy" """

_ACCEPTED = re.compile(r"iterations: ([0-9.]+) accepted tokens")


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="collect_cells.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output", metavar="FILE", help="of results, to write")
    parser.add_argument("--truth", required=True, metavar="FILE", help="the right patches")
    parser.add_argument("--low", required=True, metavar="FILE", help="the small patches")
    add_origin(parser)
    parser.add_argument("cells", nargs="+", metavar="CELL", help="as described above")
    return parser


def error_of(truth: Sequence[Any], patches: Sequence[Any]) -> float:
    """The mean absolute error in levels, rounded."""
    return round(scores(truth, patches)["MAE"], 4)


def row_of(cell: str, truth: Sequence[Any], truth_name: str) -> Dict[str, Any]:
    """A row of the file.

    Raises:
        PluginError: the cell is written in another way, or the log has no statistics.
    """
    labels, _, name = cell.partition("|")
    if not name:
        raise PluginError(f"'{cell}' is not LABELS|NAME. Write it so.")
    columns = labels_of(labels)
    patches = read_patches(f"{name}.hyp")
    same_sizes([truth_name, f"{name}.hyp"], [truth, patches])
    log = Path(f"{name}.log")
    found = _ACCEPTED.search(log.read_text("utf-8")) if log.exists() else None
    if found is None:
        raise PluginError(f"{log} tells no accepted tokens. Decode again.")
    return {
        **columns,
        "accepted tokens": float(found[1]),
        "error": error_of(truth, patches),
        "patches": len(patches),
    }


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    args = get_parser().parse_args(argv)
    truth, low = read_patches(args.truth), read_patches(args.low)
    same_number([args.truth, args.low], [truth, low])
    rows = [row_of(cell, truth, args.truth) for cell in args.cells]
    enlarged = [bicubic(patch, right.shape[0]) for patch, right in zip(low, truth)]
    rows.append({"method": "bicubic", "error": error_of(truth, enlarged), "patches": len(truth)})
    found = {**origin_of(args.command, args.setting), "rows": rows}
    write_results(args.output, found)
    print(f"{args.output}: {len(rows)} rows")


if __name__ == "__main__":
    main()
