"""examples/superres/run.sh with tiny models: from photographs to the table and the picture."""

from functools import partial
from pathlib import Path

import pytest

from tests.support.command_lines import run_example

TINY = dict(
    DIM="16", LAYERS="1", SIDE="4", STRIDE="24", SIZES="3", UPDATES_MIXED="4",
    UPDATES="6", UPDATES_HEADS="4", THREADS="1",
)  # fmt: skip
run = partial(run_example, "superres")


@pytest.mark.slow
@pytest.mark.parametrize("colour, levels", [("", 16), ("1", 48)])
def test_from_photographs_to_the_table(tmp_path: Path, colour: str, levels: int) -> None:
    (tmp_path / "bench3").mkdir()
    (tmp_path / "bench3" / "results.md").touch()
    done = run(tmp_path, **TINY, COLOUR=colour, FACTOR="4" if colour else "2")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = (tmp_path / "table.md").read_text("utf-8").splitlines()
    cells = [row.strip("| ").split(" | ") for row in rows[3:]]
    (row,) = cells
    assert row[0] == "3" and len(row) == 6 and all(" / " in cell for cell in row[1:])
    assert float(row[1].split(" / ")[0]) > 1.0
    same = [("regular3", "greedy"), ("tuned3.exact", "tuned3.greedy")]
    for exact, greedy in same:
        texts = [(tmp_path / f"{name}.hyp").read_text("utf-8") for name in (exact, greedy)]
        assert texts[0] == texts[1]
        assert {len(line.split()) for line in texts[0].splitlines()} == {levels}
    assert (tmp_path / "grid.png").stat().st_size > 1000
    assert "bicubic MAE" in done.stdout


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run().returncode == 1
    none = run(tmp_path, SIZES=" ")
    assert none.returncode == 1 and "SIZES names no block size" in none.stderr
