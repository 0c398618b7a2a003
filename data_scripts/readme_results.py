"""Tables of the README and of some pages, and a figure, made from committed results."""

import argparse
import importlib
import json
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import matplotlib
from matplotlib.figure import Figure
from textfiles import write_text

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.plots import COLOURS, STYLE

DESCRIPTION = """\
Write the README's table between its two markers, and the figure of speed-ups beside the
documentation. Both are made from docs/results/*.json, which specdec-bench wrote. Also write the
tables of docs/benchmarks.md, never-slower.md, corpora.md and models.md. Each stands between two
comments, which name a file of results and the program of this folder that wrote it:
  <!-- table of results/slower.json by never_slower.py -->
  <!-- end of table -->"""

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"
#: Pages with tables between comments.
PAGES = tuple(sorted((ROOT / "docs").glob("*.md")))
MADE = re.compile(
    r"(?P<begin><!-- table of (?P<file>\S+) by (?P<program>\w+)\.py -->\n)"
    r".*?(?P<end><!-- end of table -->)",
    re.DOTALL,
)
BEGIN, END = "<!-- results: data_scripts/readme_results.py -->\n", "<!-- end of results -->"


class Line(NamedTuple):
    """A line of the table.

    Attributes:
        search: what is searched for.
        file: of ``docs/results``, without its ending.
        theirs, ours: methods in the file that are compared.
        typed: how ours is asked for.
    """

    search: str
    file: str
    theirs: str
    ours: str
    typed: str


LINES = (
    *(
        Line("greedy", "2026-11-30-translation-batch-1", "fairseq beam 1", ours, typed)
        for ours, typed in (("greedy", "greedy"), ("auto", "auto"))
    ),
    Line("greedy", "2026-11-30-queue-batch-512", "fairseq beam 1", "greedy", "greedy"),
    *(
        Line("5 beams", f"2026-11-30-{run}", "fairseq beam 5", "beam", "beam")
        for run in ("beam-batch-1", "beam-batch-8", "beam-batch-32", "queue-batch-512")
    ),
    Line("samples", "2026-11-30-sampling-batch-1", "fairseq beam 1", "specdec self", "specdec"),
    Line("samples", "2026-11-30-sampling-batch-32", "fairseq beam 1", "greedy", "greedy"),
)
#: With so few batches, the whole set's time is shared out among them: a median would be that of one
#: length of sentences.
FEW = 8
#: What the figure's times are given against, and whose output its methods have.
BASE = "fairseq beam 1"
#: The figure's bars, from the first line's file: methods, and what they are called.
BARS = {
    BASE: "fairseq, greedy",
    "greedy": "greedy",
    "specdec": "specdec, trained drafter",
    "specdec self": "specdec, self-draft",
    "auto": "auto",
}


def rows_of(file: str) -> Dict[str, Dict[str, Any]]:
    """The rows of a results file, by method."""
    text = (RESULTS / f"{file}.json").read_text("utf-8")
    return {row["method"]: row for row in json.loads(text)["rows"]}


def table() -> str:
    """The README's table, in Markdown."""
    lines = [
        "| search | sentences a batch | fairseq, ms a batch | `--decoding` | ms a batch "
        "| times as fast | output as fairseq's |",
        "|---|---:|---:|---|---:|---:|---|",
    ]
    for each in LINES:
        rows = rows_of(each.file)
        theirs, ours = rows[each.theirs], rows[each.ours]
        equal = ours.get("equal to fairseq greedy", ours.get("equal to fairseq beam 5"))
        same = "the same distribution" if equal is None else f"{equal:,} of {ours['sentences']:,}"
        faster = ours[f"{average(ours)[0]} speed-up over {each.theirs}"]
        lines.append(
            f"| {each.search} | {ours['batch size']} | {average(theirs)[1]:,.1f} | `{each.typed}` "
            f"| {average(ours)[1]:,.1f} | **{faster:.1f}** | {same} |"
        )
    return "\n".join(lines) + "\n"


def average(row: Dict[str, Any]) -> Tuple[str, float]:
    """Which speed-up is shown, and the milliseconds of a batch."""
    batches = -(-row["sentences"] // row["batch size"])
    if batches <= FEW:
        return "total", 1000 * row["seconds"] / batches
    return "median", row["p50_ms"]


def with_table(readme: str) -> str:
    """The README's text with the present table.

    Raises:
        PluginError: the markers are missing.
    """
    if not re.search(f"{BEGIN}.*{END}", readme, re.DOTALL):
        raise PluginError(f"README.md has no lines {BEGIN.strip()} and {END}. Put them back.")
    before, rest = readme.split(BEGIN)
    return f"{before}{BEGIN}\n{table()}\n{END}{rest.split(END)[1]}"


def with_made_tables(document: str) -> str:
    """The text of a page with the present tables."""

    def made(found: "re.Match[str]") -> str:
        result = json.loads((RESULTS.parent / found["file"]).read_text("utf-8"))
        program = importlib.import_module(found["program"])
        table = program.table(result.get("rows", result))
        return f"{found['begin']}\n{table}\n\n{found['end']}"

    return MADE.sub(made, document)


def figure() -> Figure:
    """Bars: how many times as fast as fairseq's greedy decoding, whose output all have."""
    rows = rows_of(LINES[0].file)
    times = [rows[method][f"median speed-up over {BASE}"] for method in BARS]
    colours = [COLOURS[0] if name.startswith("fairseq") else COLOURS[2] for name in BARS.values()]
    with matplotlib.rc_context(STYLE):
        drawn = Figure(figsize=(6.4, 1.9), layout="constrained")
        axis = drawn.subplots()
        bars = axis.barh(list(BARS.values()), times, color=colours)
        axis.bar_label(bars, [f"{each:.1f}×" for each in times], padding=3)
        axis.invert_yaxis()
        axis.grid(axis="y", visible=False)
        axis.set_xlim(0, 1.1 * max(times))
        axis.set_xlabel("times as fast as fairseq, with the same output, one sentence at a time")
    return drawn


def save(drawn: Figure, path: Path) -> None:
    """Save a figure as SVG, the same bytes each time."""
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": "specdec"}):
        drawn.savefig(path, metadata={"Date": None, "Creator": None})


def main(argv: Optional[Sequence[str]] = None) -> List[Path]:
    """Command line; returns the files that were written."""
    parser = argparse.ArgumentParser(prog="readme_results.py", description=DESCRIPTION)
    parser.parse_args(argv)
    readme, picture = ROOT / "README.md", ROOT / "docs" / "images" / "speed-ups.svg"
    write_text(str(readme), with_table(readme.read_text("utf-8")))
    for page in PAGES:
        write_text(str(page), with_made_tables(page.read_text("utf-8")))
    picture.parent.mkdir(exist_ok=True)
    save(figure(), picture)
    return [readme, *PAGES, picture]


if __name__ == "__main__":
    main()
