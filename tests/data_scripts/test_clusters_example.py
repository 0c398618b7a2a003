"""examples/vocab_clusters/run.sh on a tiny corpus in two directions."""

import json
from functools import partial
from pathlib import Path

import pytest

from specdec_plugin.vocab.cluster_file import load_clusters
from tests.support.command_lines import Corpus, directions, run_example

run = partial(run_example, "vocab_clusters")
TINY = dict(
    TARGETS="es fr", SIZE="60", UPDATES="8", CLUSTERS="8", TOP_K="2", STATES="300", GRID="8",
    GRID_K="1", GRID_NEIGHBOURS="2", SENTENCES="4", THREADS="1", FEW="220", MORE_STATES="40",
)  # fmt: skip


@pytest.mark.slow
def test_from_text_to_tables(corpus: Corpus, tmp_path: Path) -> None:
    text = directions(corpus, tmp_path / "text")
    for side in ("en", "fr"):  # few, so that the model translates some that Spanish has alone
        train = text / "en-fr" / f"train.{side}"
        train.write_text("".join(train.open(encoding="utf-8").readlines()[:200]), "utf-8")
    output = tmp_path / "out"
    done = run(text, output, **TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {
        path.stem: json.loads(path.read_text("utf-8"))["rows"]
        for path in (output / "results").glob("*.json")
    }
    assert {*rows} == {"directions", "drafts", "grid", "beam-2", "greedy"}
    names = [row["direction"] for row in rows["directions"]]
    assert names == ["en-es", "en-es, all together", "en-fr", "en-fr, all together"]
    assert (output / "results" / "grid.png").stat().st_size > 1000
    beam = [(row["direction"], row["setting"]) for row in rows["beam-2"]]
    assert beam == [(each, name) for each in ("en-es", "en-fr") for name in ("full", "clustered")]
    assert all(row["seconds"] > 0 and row["bleu"] >= 0 for row in rows["beam-2"])
    lossless = [row for row in rows["greedy"] if row["setting"] in ("certified", "drafts")]
    assert [row["differing"] for row in lossless] == ["0 of 21"] * 4
    assert load_clusters(str(output / "clusters" / "es.pt")).note == "src-tgt train, 300 states"
    assert load_clusters(str(output / "clusters" / "fr.pt")).note == "src-tgt train, 340 states"
    again = run(text, output, **TINY)
    assert again.returncode == 0 and "epoch 001" not in again.stdout


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(tmp_path).returncode == 1
    none = run(tmp_path, tmp_path, TARGETS=" ")
    assert none.returncode == 1 and "TARGETS names no language" in none.stderr
