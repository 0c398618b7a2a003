"""A training in rounds, as a file of results: updates, hours, and the figure of each round."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from example_results import add_origin, origin_of, write_results

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Write the rounds of a training into a file of results, with the machine, the date, the command and
the commit. Each line of FILE is of training_progress.py: updates, hours, and the best figure so
far."""

EXAMPLE = """\
example:
  python data_scripts/training_rounds.py results/rounds.json --command "run.sh CORPUS OUTPUT" \\
      --figure "accepted drafted tokens" models/nat-base.rounds"""


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="training_rounds.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output", metavar="RESULTS", help="the file to write")
    add_origin(parser)
    parser.add_argument("--figure", required=True, metavar="NAME", help="what the last number is")
    parser.add_argument("rounds", metavar="FILE", help="a line for each round")
    return parser


def rows_of(path: str, figure: str) -> List[Dict[str, Any]]:
    """A row for each round.

    Raises:
        PluginError: there is no such file, or a line of it is not that of a round.
    """
    try:
        lines = [line.split() for line in Path(path).read_text("utf-8").splitlines()]
        return [
            {"updates": int(updates), "training hours": float(hours), figure: float(best)}
            for updates, hours, best in lines
        ]
    except (OSError, ValueError) as error:
        raise PluginError(
            f"{path} is no file of rounds ({error}). Each line needs updates, hours and a figure."
        ) from None


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    rows = rows_of(args.rounds, args.figure)
    found = {**origin_of(args.command, args.setting), "rows": rows}
    write_results(args.output, found)


if __name__ == "__main__":
    main()
