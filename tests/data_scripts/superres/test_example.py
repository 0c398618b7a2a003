"""examples/superres/run.sh with tiny models: from photographs to the table and the picture."""

import json
from functools import partial
from pathlib import Path

import pytest
from example_results import with_tables

from tests.support.command_lines import run_example

TINY = dict(
    DIM="16", LAYERS="1", SIDE="4", STRIDE="24", SIZES="3", UPDATES_MIXED="4",
    UPDATES="6", UPDATES_HEADS="4", SENTENCES="2", THREADS="1",
)  # fmt: skip
run = partial(run_example, "superres")


@pytest.mark.slow
@pytest.mark.parametrize("colour, levels", [("", 16), ("1", 48)])
def test_from_photographs_to_the_table(tmp_path: Path, colour: str, levels: int) -> None:
    done = run(tmp_path, **TINY, COLOUR=colour, FACTOR="4" if colour else "2")
    assert done.returncode == 0, done.stdout + done.stderr
    quality, speed = (
        json.loads((tmp_path / "results" / f"{name}.json").read_text("utf-8"))
        for name in ("quality", "speed")
    )
    assert "SIZES='3'" in quality["command"] and quality["settings"]["ε"] == "2"
    rows = {(row.get("setting"), row.get("k")): row for row in quality["rows"]}
    drafted = "regular", "approximate", "fine-tuned", "both", "fine-tuned, greedy"
    assert {*rows} == {("regular", 1), *((name, 3) for name in drafted), (None, None)}
    assert rows["regular", 1]["accepted tokens"] == 1.0 < rows["regular", 3]["accepted tokens"]
    assert rows["regular", 1]["error"] == rows["regular", 3]["error"] > 0
    assert rows[None, None]["method"] == "bicubic"
    assert [row["method"] for row in speed["rows"]] == ["fairseq beam 1", "greedy", "blockwise"]
    assert {row["k"] for row in speed["rows"]} == {3}
    same = [("regular3", "greedy"), ("tuned3.exact", "tuned3.greedy")]
    for exact, greedy in same:
        texts = [(tmp_path / f"{name}.hyp").read_text("utf-8") for name in (exact, greedy)]
        assert texts[0] == texts[1]
        assert {len(line.split()) for line in texts[0].splitlines()} == {levels}
    check = (tmp_path / "results" / "same.txt").read_text("utf-8")
    assert check.startswith("k = 3\n") and "Lossless here" in check
    assert (tmp_path / "grid.png").stat().st_size > 1000
    comment = "results/quality.json: accepted tokens / error by k across setting"
    tables = with_tables(f"<!-- table of {comment} -->\n<!-- end of table -->\n", tmp_path)
    assert "| k | regular | approximate | fine-tuned | both | fine-tuned, greedy |" in tables


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run().returncode == 1
    none = run(tmp_path, SIZES=" ")
    assert none.returncode == 1 and "SIZES names no block size" in none.stderr
