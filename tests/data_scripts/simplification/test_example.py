"""examples/simplification/run.sh on made sentences, with a tiny model: all tables."""

import json
import random
from functools import partial
from pathlib import Path

import pytest

from tests.support.command_lines import run_example
from tests.support.files import some

TINY = dict(
    UPDATES="2", UPDATES_TUNE="2", SIZE="120", DIM="16", LAYERS="1", LENGTHS="8",
    SIMILARITIES="6", NAMES="made", SENTENCES="0", SAMPLES="20", THREADS="1",
    MAX_LENGTH="12",
)  # fmt: skip
WORDS = "old house near river small bridge where people trade fish bread wine under trees".split()
run = partial(run_example, "simplification")


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    draw = random.Random(1)
    lines = [" ".join(["The", *draw.choices(WORDS, k=8)]) + "." for _ in range(60)]
    shorter = [" ".join(line.split()[:5]) + "." for line in lines]
    for name, text in (("orig", lines), ("simp.0", shorter), ("simp.1", lines)):
        (tmp_path / f"made.{name}").write_text("".join(f"{line}\n" for line in text), "utf-8")
    return tmp_path


@pytest.mark.slow
def test_from_text_to_tables(corpora: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    done = run(corpora, corpora / "made.orig", output, **TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((output / "scores.json").read_text("utf-8"))["rows"]
    assert len(rows) == 6
    for row in rows:
        assert row["scores"].keys() >= {"SARI", "SARI keep", "SARI delete", "SARI add"}
    assert sum("SARI gain" in row["scores"] for row in rows) == 2
    count = len((output / "pairs" / "test.made.orig").read_text("utf-8").splitlines())
    same = (output / "same.txt").read_text("utf-8").splitlines()
    assert len(same) == 6 and all(f"{count} of {count} lines" in line for line in same)

    times = {path: path.stat().st_mtime_ns for path in some(output.rglob("*.pt"))}
    again = run(corpora, corpora / "made.orig", output, **TINY)
    assert again.returncode == 0, again.stdout + again.stderr
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.pt")} == times


@pytest.mark.slow
def test_a_shipped_model_is_tuned(corpora: Path, tmp_path: Path) -> None:
    output, shipped = tmp_path / "out", Path("checkpoints/gec-en").resolve()
    settings = {**TINY, "DIM": "256", "LAYERS": "3", "START": str(shipped)}
    done = run(corpora, corpora / "made.orig", output, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((output / "scores.json").read_text("utf-8"))
    assert found["settings"]["start"] == "gec-en" and len(found["rows"]) == 6
    assert not (output / "denoised.pt").exists()


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(tmp_path).returncode == 1
    none = run(tmp_path / "none", "text", tmp_path)
    assert none.returncode == 1 and "is no folder" in none.stderr
    empty = run(tmp_path, "text", tmp_path, START=str(tmp_path))
    assert empty.returncode == 1 and "holds no model.pt" in empty.stderr
