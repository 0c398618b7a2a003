"""Rows of several runs of specdec-bench in one file, for the tables of an example's README."""

import argparse
import math
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from example_results import add_origin, named, origin_of, read_json, write_results

from specdec_plugin.errors import PluginError

DESCRIPTION = """\
Collect rows of runs of specdec-bench into one file. A run is given as
  FOLDER                            all of its rows
  FOLDER|NAME=VALUE;NAME=VALUE      the same, each row with these columns too
  FOLDER|NAME=VALUE|METHOD;METHOD   the rows of these methods
A METHOD may be renamed: "specdec++, β=3, τ=1 -> high quality".
Swept settings get the columns k, β and τ. Guesses of the Jacobi solvers get b and "guesses". The
file has the machine of the runs, which must be the same, the date of the last one, the commands and
the commit."""

EXAMPLE = """\
example:
  python data_scripts/collect_runs.py results/forms.json --command "run.sh CORPUS OUTPUT" \\
      "runs/heads|drafter=heads|blockwise" "runs/ours|drafter=ours|specdec;specdec++" """

#: Columns that settings of a sweep get.
SWEPT = {"block_size": "k", "top_beta": "β", "tolerance": "τ"}
#: How specdec-bench writes, and once wrote, that there is no limit.
NO_LIMIT = (None, math.inf)
#: What no table shows, and what would make files large.
LEFT_OUT = ("acceptance by position",)


class Run(NamedTuple):
    """What is taken of a run.

    Attributes:
        folder: its ``--output``.
        labels: columns of each row, besides its own.
        methods: names in the run, and in the table; empty: all, by their own names.
    """

    folder: Path
    labels: Dict[str, Any]
    methods: Dict[str, str]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="collect_runs.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("output", metavar="FILE", help="of results, to write")
    add_origin(parser)
    parser.add_argument("runs", nargs="+", metavar="RUN", help="as described above")
    return parser


def run_of(text: str) -> Run:
    """What is written as FOLDER|LABELS|METHODS."""
    folder, _, rest = text.partition("|")
    labels, _, methods = rest.partition("|")
    names = [each.split(" -> ") for each in methods.split(";") if each]
    return Run(
        Path(folder),
        labels_of(labels),
        {each[0].strip(): each[-1].strip() for each in names},
    )


def labels_of(text: str) -> Dict[str, Union[int, float, str]]:
    """Columns of a row, from ``NAME=VALUE;NAME=VALUE``; none from an empty text.

    Raises:
        PluginError: it is written in another way.
    """
    return {
        name: number(value) for name, value in (named(each) for each in text.split(";") if each)
    }


#: The folders of an absolute path, up to the last one.
_FOLDERS = re.compile(r"(?<![\w.])/(?:[^\s/']+/)*(?=[^\s/']+/[^\s/']+)")


def without_folders(command: str) -> str:
    """A command without the folders of one machine.

    >>> without_folders("bench data/bin --path /home/me/models/en-es/teacher.pt --top 'a b'")
    "bench data/bin --path en-es/teacher.pt --top 'a b'"
    """
    return _FOLDERS.sub("", command)


def number(text: str) -> Union[int, float, str]:
    """The number that a text is, or the text.

    >>> number("12"), number("0.5"), number("3-3")
    (12, 0.5, '3-3')
    """
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def rows_of(run: Run, result: Dict[str, Any]) -> List[Dict[str, Any]]:
    """The wanted rows of a run.

    Raises:
        PluginError: it has none of a method.
    """
    rows: Dict[str, List[Dict[str, Any]]] = {}
    for row in result["rows"]:
        rows.setdefault(row["method"], []).append(row)
    wanted = run.methods or {name: name for name in rows}
    missing = [name for name in wanted if name not in rows]
    if missing:
        raise PluginError(
            f"The run in {run.folder} has no method '{missing[0]}'. It has: {'; '.join(rows)}."
        )
    return [
        {**run.labels, **tidy(row), "method": shown}
        for name, shown in wanted.items()
        for row in rows[name]
    ]


def tidy(row: Dict[str, Any]) -> Dict[str, Any]:
    """A row without long lists and missing limits, and with the columns of its sweep."""
    kept = {
        name: value for name, value in row.items() if name not in LEFT_OUT and value not in NO_LIMIT
    }
    if "jacobi_window" in kept:
        pool = "pool" if kept["jacobi_pool"] else "no pool"
        guesses = f"{kept['jacobi_window']}, {kept['jacobi_init']}, {pool}"
        return {**kept, "b": kept["block_size"], "guesses": guesses}
    return {**kept, **{SWEPT[name]: kept[name] for name in SWEPT if name in kept}}


def collect(
    output: str, command: str, settings: Sequence[str], runs: Sequence[Run]
) -> Dict[str, Any]:
    """Write one file of all rows; returns its content.

    Raises:
        PluginError: a run is not finished, or the runs are of several machines.
    """
    rows: List[Dict[str, Any]] = []
    results = []
    for run in runs:
        result = read_json(run.folder / "results.json")
        if not isinstance(result, dict) or not {"rows", "machine", "date"} <= result.keys():
            raise PluginError(
                f"{run.folder} is no --output of specdec-bench. Let the run finish, or name it."
            )
        results.append(result)
        rows += rows_of(run, result)
    machines = [result["machine"] for result in results]
    others = [run.folder for run, each in zip(runs, machines) if each != machines[0]]
    if others:
        raise PluginError(
            f"The run in {others[0]} was made on another machine, or with other versions, than "
            f"that in {runs[0].folder}. Times of both cannot stand in one table: run it again."
        )
    date = max(result["date"] for result in results)
    origin = {**origin_of(command, settings), "machine": machines[0], "date": date}
    commands = dict.fromkeys(
        without_folders(result["command"]) for result in results if "command" in result
    )
    found = {**origin, "commands of the runs": list(commands), "rows": rows}
    write_results(output, found)
    return found


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    found = collect(args.output, args.command, args.setting, [*map(run_of, args.runs)])
    print(f"{args.output}: {len(found['rows'])} rows")


if __name__ == "__main__":
    main()
