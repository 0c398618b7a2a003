"""Results of the examples: collected into files that are committed, and from there into READMEs."""

import argparse
import datetime
import json
import re
import subprocess
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from textfiles import read_lines, write_lines, write_text

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.report import machine

DESCRIPTION = """\
  collect   put scores (specdec-gec-score --json, score_summaries.py --json) into one file, with the
            machine, the date, the command and the commit
  tables    write the tables of the examples' READMEs, and of the documentation's pages, from the
            files that they name

In a README, a table stands between two comments:
  <!-- table of results/scores.json: F0.5, precision -->
  <!-- end of table -->
Before the colon may be several files. Behind it are the columns. Without it all scores are shown,
or the usual columns of specdec-bench, whose files have a row for each method, or with "by edit
ratio" a row for each range and method. "method=greedy" keeps the rows of greedy only. A row without
a figure behind its name is left out. "accepted tokens / BLEU by τ across β" makes a row for each τ
and a column for each β. Text between the comments stays where a file does not exist yet, unless it
is a table."""

EXAMPLE = """\
examples:
  python data_scripts/example_results.py collect out/scores.json \\
      --command "run.sh ua-gec text out" "without=out/real.json" "with=out/tuned.json"
  python data_scripts/example_results.py tables"""

ROOT = Path(__file__).resolve().parent.parent
TABLE = re.compile(
    r"(<!-- table of (?P<files>\S+\.json(?: \S+\.json)*)(?:: (?P<columns>[^>]*?))? -->\n)"
    r"(.*?)(<!-- end of table -->)",
    re.DOTALL,
)
#: "FIGURES by ROWS across COLUMNS", with / between figures.
ACROSS = re.compile(r"(?P<figures>.+) by (?P<rows>.+) across (?P<columns>.+)")
#: Columns of specdec-bench's files, and what they hold.
SPEED = {
    "method": "method",
    "ms a sentence": "p50_ms",
    "× fairseq beam 5": "median speed-up over fairseq beam 5",
    "× fairseq beam 1": "median speed-up over fairseq beam 1",
    "× greedy": "median speed-up over greedy",
    "accepted tokens": "accepted tokens",
}


def _share(part: str, row: Mapping[str, Any]) -> str:
    """Of a row's time, how much a part of decoding takes."""
    seconds = row["seconds by part"]
    return f"{100 * seconds[part] / seconds['total']:.0f}"


#: More of them, which are shown where they are named.
FIGURES: Dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "ms a batch": lambda row: row["p50_ms"],
    "iterations": lambda row: row["iterations"] / row["sentences"],
    "BLEU": lambda row: row["bleu"],
    "repeated tokens in %": lambda row: row["repetition percent"],
    "median ms (p90; p99)": lambda row: (
        f"{row['p50_ms']:.1f} ({row['p90_ms']:.0f}; {row['p99_ms']:.0f})"
    ),
    "tokens a second": lambda row: f"{row['tokens'] / row['seconds']:,.0f}",
    "equal to fairseq's greedy": lambda row: (
        f"{row['equal to fairseq greedy']} of {row['sentences']}"
    ),
    "equal to fairseq beam 5": lambda row: (
        f"{row['equal to fairseq beam 5']} of {row['sentences']}"
    ),
    "break-even": lambda row: row["accepted tokens"] / row["median speed-up over greedy"],
    "GFLOPs of decoding": lambda row: (
        row["GFLOPs a sentence"]["total"] - row["GFLOPs a sentence"]["encoder"]
    ),
    **{
        f"{part} in %": partial(_share, part)
        for part in ("encoder", "drafter", "verifier", "projection")
    },
    "weights in MB": lambda row: row["memory in MB"]["verifier"] + row["memory in MB"]["drafter"],
    "memory in MB": lambda row: row["memory in MB"]["peak"],
}
BY_EDIT_RATIO = "by edit ratio"


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="example_results.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="task", required=True)
    collect = commands.add_parser("collect", help="write a file of results")
    collect.add_argument("output", metavar="FILE", help="of results, to write")
    add_origin(collect)
    collect.add_argument("rows", nargs="+", metavar="SYSTEM=SCORES", help="a row of the table")
    tables = commands.add_parser("tables", help="write the tables of READMEs")
    tables.add_argument("readmes", nargs="*", metavar="README", help="default: all")
    return parser


# --- collecting -------------------------------------------------------------------------


def named(text: str) -> List[str]:
    """The two parts of ``NAME=VALUE``."""
    name, separator, value = text.partition("=")
    if not (name and separator and value):
        raise PluginError(f"'{text}' is not NAME=VALUE. Write it so.")
    return [name, value]


def read_json(path: Path) -> Any:
    """A file of results; PluginError where it is none."""
    try:
        return json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        raise PluginError(f"{path} is no file of results. Run the example to its end.") from None


def commit() -> Optional[str]:
    """The commit that is checked out, or None outside of a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, encoding="utf-8"
        )
    except OSError:
        return None
    return done.stdout.strip() or None


def add_origin(parser: argparse.ArgumentParser) -> None:
    """Add the options that :func:`origin_of` takes."""
    parser.add_argument("--command", required=True, help="that made the results")
    parser.add_argument(
        "--setting", action="append", default=[], metavar="NAME=VALUE", help="to keep beside them"
    )


def origin_of(command: str, settings: Sequence[str]) -> Dict[str, Any]:
    """What every file of results names besides its rows."""
    return {
        "machine": machine(),
        "date": datetime.date.today().isoformat(),
        "command": command,
        "commit": commit(),
        "settings": dict(map(named, settings)),
    }


def write_results(path: str, result: Dict[str, Any]) -> None:
    """Write a file of results, whole or not at all. It holds no infinite number."""
    write_lines(path, [json.dumps(result, indent=1, ensure_ascii=False, allow_nan=False)])


def collect(
    output: str, command: str, settings: Sequence[str], rows: Sequence[str]
) -> Dict[str, Any]:
    """Write one file of all scores; returns its content."""
    found = []
    for system, path in map(named, rows):
        scores = read_json(Path(path))
        if not isinstance(scores, dict) or "scores" not in scores:
            raise PluginError(f"{path} holds no scores. Score with --json.")
        found.append({"system": system, **scores})
    result = {**origin_of(command, settings), "rows": found}
    write_results(output, result)
    return result


# --- tables -----------------------------------------------------------------------------


def score_cell(score: Dict[str, float], signed: bool) -> str:
    """A score with its interval."""
    sign = "+" if signed else ""
    cell = f"{score['score']:{sign}.2f}"
    if "low" in score:
        cell += f" ({score['low']:{sign}.1f} to {score['high']:{sign}.1f})"
    return cell


def score_rows(rows: Sequence[Dict[str, Any]], columns: Sequence[str]) -> List[List[str]]:
    """The table of collected scores, its heading first."""
    names = list(columns) or list(dict.fromkeys(name for row in rows for name in row["scores"]))
    table = [["system", *names]]
    for row in rows:
        cells = [row["scores"].get(name) for name in names]
        table.append(
            [row["system"]]
            + [score_cell(cell, "gain" in name) if cell else "" for name, cell in zip(names, cells)]
        )
    return table


def speed_rows(rows: Sequence[Dict[str, Any]], columns: Sequence[str]) -> List[List[str]]:
    """The table of a benchmark, its heading first."""
    names = [name for name in SPEED if any(SPEED[name] in row for row in rows)]
    if columns:
        names = list(columns)
    return [names, *([figure(row, name) for name in names] for row in rows)]


def figure(row: Mapping[str, Any], name: str) -> str:
    """What a row of a benchmark has in a column; empty if it has nothing there."""
    try:
        value = FIGURES[name](row) if name in FIGURES else row[SPEED.get(name, name)]
    except KeyError:
        value = row.get(name)
    return speed_cell(value)


def crossed_rows(rows: Sequence[Dict[str, Any]], column: str) -> List[List[str]]:
    """A table of two settings, its heading first.

    Args:
        rows: of a benchmark; those without one of the settings are left out.
        column: as :data:`ACROSS`.

    Raises:
        PluginError: no row has both settings, or several have the same.
    """
    parts = ACROSS.fullmatch(column)
    assert parts is not None
    down, across = parts["rows"], parts["columns"]
    figures = [name.strip() for name in parts["figures"].split(" / ")]
    cells: Dict[Any, str] = {}
    for row in rows:
        if down in row and across in row:
            place = row[down], row[across]
            if place in cells:
                raise PluginError(f"'{column}': several rows have {down} {place[0]}, {place[1]}.")
            cells[place] = " / ".join(figure(row, name) or "–" for name in figures)
    if not cells:
        raise PluginError(f"'{column}': no row has {down} and {across}.")
    lines = list(dict.fromkeys(place[0] for place in cells))
    heads = list(dict.fromkeys(place[1] for place in cells))
    named_heads = [f"{across} = {each}" if not isinstance(each, str) else each for each in heads]
    body = [[str(line), *(cells.get((line, head), "") for head in heads)] for line in lines]
    return [[down, *named_heads], *body]


def speed_cell(value: Any) -> str:
    """A figure of a benchmark."""
    if value is None:
        return ""
    return f"{value:,.2f}" if isinstance(value, float) else str(value)


def make_table(rows: Sequence[Dict[str, Any]], columns: Sequence[str]) -> List[List[str]]:
    """The table of some rows, its heading first."""
    if len(columns) == 1 and ACROSS.fullmatch(columns[0]):
        return crossed_rows(rows, columns[0])
    head, *body = (score_rows if "scores" in rows[0] else speed_rows)(rows, columns)
    # Such as fairseq's search, which does not time its parts.
    return [head, *(row for row in body if len(row) < 2 or any(row[1:]))]


def table_of(paths: Sequence[Path], columns: Sequence[str]) -> str:
    """The table of files of results, in Markdown.

    Raises:
        PluginError: one is no file of results, or none has one of the columns.
    """
    part = BY_EDIT_RATIO if BY_EDIT_RATIO in columns else "rows"
    columns = [name for name in columns if name != BY_EDIT_RATIO]
    rows = []
    for path in paths:
        found = read_json(path).get(part)
        if not found:
            raise PluginError(f"{path} holds no rows. Run the example to its end.")
        rows += found
    kept = [named(name) for name in columns if "=" in name]
    columns = [name for name in columns if "=" not in name]
    rows = [row for row in rows if all(str(row.get(key)) == value for key, value in kept)]
    if not rows:
        raise PluginError(f"{paths[-1]} holds no rows of {kept}. Correct the comment.")
    table = make_table(rows, columns)
    if not table[0]:
        raise PluginError(f"{paths[-1]} has columns of its own. Name some in the comment.")
    for place, name in enumerate(table[0][1:], start=1):
        if not any(row[place] for row in table[1:]):
            raise PluginError(
                f"{paths[-1]} has no column '{name}'. Correct the comment in the README."
            )
    rule = ["---", *["---:"] * (len(table[0]) - 1)]
    return "".join(f"| {' | '.join(row)} |\n" for row in [table[0], rule, *table[1:]])


def with_tables(text: str, folder: Path) -> str:
    """The text of a README in this folder with the present tables."""

    def present(match: "re.Match[str]") -> str:
        paths = [folder / name for name in match["files"].split()]
        if not all(path.exists() for path in paths) and "|" not in match[4]:
            return match[0]
        columns = [name.strip() for name in (match["columns"] or "").split(",") if name.strip()]
        return f"{match[1]}\n{table_of(paths, columns)}\n{match[5]}"

    return TABLE.sub(present, text)


def readmes() -> List[Path]:
    """Those of all examples and checkpoints, and the pages of the documentation."""
    pages = "examples/*/README.md", "checkpoints/*/README.md", "docs/*.md"
    return sorted(path for page in pages for path in ROOT.glob(page))


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    if args.task == "collect":
        result = collect(args.output, args.command, args.setting, args.rows)
        print("".join(f"| {' | '.join(row)} |\n" for row in score_rows(result["rows"], [])))
        return
    for path in [Path(each) for each in args.readmes] or readmes():
        text = "".join(f"{line}\n" for line in read_lines(str(path)))
        changed = with_tables(text, path.parent)
        if changed != text:
            write_text(str(path), changed)
            print(f"wrote {path}")


if __name__ == "__main__":
    main()
