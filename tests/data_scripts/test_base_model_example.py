"""examples/base_model and examples/other_tasks on a tiny corpus in two directions."""

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.command_lines import Corpus, directions, run_example

SMALL = dict(TARGETS="es fr", SIZE="60", UPDATES="8", SENTENCES="4", THREADS="1", MAX_LEN="12")


def rows_of(path: Path) -> List[Dict[str, Any]]:
    rows: List[Dict[str, Any]] = json.loads(path.read_text("utf-8"))["rows"]
    return rows


@pytest.mark.slow
def test_a_base_model_that_is_grown(corpus: Corpus, tmp_path: Path) -> None:
    text, output = directions(corpus, tmp_path / "text"), tmp_path / "out"
    settings = dict(WIDTH="2", LAYERS="4", UPDATES_BASE="4", UPDATES_DRAFTER="4", BATCHES="1,4")
    done = run_example("base_model", text, output, **SMALL, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = rows_of(output / "bench" / "base" / "results.json")
    ours = [row for row in rows if not row["method"].startswith(("fairseq", "ctranslate2"))]
    assert {row["batch size"] for row in ours} == {1, 4}
    assert all(row["equal to fairseq greedy"] == 4 for row in ours if row["method"] != "beam")
    assert all(row["bleu"] >= 0 for row in rows)
    again = run_example("base_model", text, output, **SMALL, **settings)
    assert again.returncode == 0 and "epoch 001" not in again.stdout


@pytest.mark.slow
def test_drafters_and_heads_of_other_tasks(corpus: Corpus, tmp_path: Path) -> None:
    text, output = directions(corpus, tmp_path / "text"), tmp_path / "out"
    settings = dict(MINUTES="0.05", UPDATES_MBART="8", SIZE_MBART="60")
    done = run_example("other_tasks", text, output, **SMALL, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in ("multilingual", "mbart"):
        folder = output / "drafts" / name
        same = (folder / "same.txt").read_text("utf-8").splitlines()
        assert len(same) == 4 and all("21 of 21 lines" in line for line in same)
        rows = rows_of(folder / "bench" / "results.json")
        assert {row["equal to fairseq greedy"] for row in rows[1:]} == {4}
        assert (folder / "ddgviz" / "index.html").stat().st_size > 1000


@pytest.mark.parametrize("name", ["base_model", "other_tasks"])
def test_usage(name: str, tmp_path: Path) -> None:
    assert "usage: run.sh" in run_example(name, "--help").stdout
    assert run_example(name, tmp_path).returncode == 1
