"""examples/summarization/run.sh on made articles, with tiny models: all tables."""

import json
import random
from functools import partial
from pathlib import Path

import pytest

from tests.support.command_lines import run_example
from tests.support.files import some

TINY = dict(
    UPDATES="2", UPDATES_TUNE="2", SIZE="120", DIM="16", LAYERS="1", POSITIONS="32",
    MAX_LENGTH="8", DECODINGS="fairseq-beam-1 specdec input-guided beam-5 fairseq-beam-5",
    SENTENCES="0", SAMPLES="20", THREADS="1",
)  # fmt: skip
WORDS = "model learns rules from text while others store tables of words and fail".split()
run = partial(run_example, "summarization")


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    draw = random.Random(1)
    for name, count in (("train", 60), ("dev", 4)):
        lines = []
        for _ in range(count):
            source = [" ".join(["The", *draw.choices(WORDS, k=9)]) + "." for _ in range(3)]
            lines.append(json.dumps({"source": source, "target": [source[0][:30]]}) + "\n")
        (tmp_path / f"{name}.jsonl").write_text("".join(lines), "utf-8")
    return tmp_path


@pytest.mark.slow
def test_from_articles_to_tables(articles: Path, tmp_path: Path) -> None:
    output, text = tmp_path / "out", tmp_path / "text.en"
    text.write_text("Some further text of rules.\n", "utf-8")
    arguments = (articles / "train", articles / "dev", text, output)
    done = run(*arguments, **TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((output / "scores.json").read_text("utf-8"))["rows"]
    assert len(rows) == 7 and rows[0]["system"] == "first sentence"
    assert rows[0]["scores"]["ROUGE-L"]["score"] > 50  # summaries are made of first sentences
    assert "ROUGE-L gain" in rows[2]["scores"]
    same = (output / "same.txt").read_text("utf-8").splitlines()
    assert len(same) == 5 and all("4 of 4 lines" in line for line in same)

    times = {path: path.stat().st_mtime_ns for path in some(output.rglob("*.pt"))}
    pieces = output / "pairs-data" / "pieces" / "test.src"
    longest = max(len(line.split()) for line in pieces.read_text("utf-8").split("\n"))
    assert longest > int(TINY["POSITIONS"])  # so that sources are cut

    again = run(*arguments, **{**TINY, "SENTENCES": "4"})
    assert again.returncode == 0, again.stdout + again.stderr
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*.pt")} == times
    timed = json.loads((output / "bench" / "results.json").read_text("utf-8"))["rows"]
    assert {row["sentences"] for row in timed} == {4}


@pytest.mark.slow
def test_a_shipped_model_is_denoised_and_tuned(articles: Path, tmp_path: Path) -> None:
    output, text, shipped = (
        tmp_path / "out",
        tmp_path / "text.en",
        Path("checkpoints/gec-en").resolve(),
    )
    text.write_text("Some further text of rules.\n", "utf-8")
    settings = {**TINY, "START": str(shipped), "DIM": "256", "LAYERS": "3"}
    settings.update(UPDATES="1", UPDATES_TUNE="1", DECODINGS="fairseq-beam-1 specdec")
    done = run(articles / "train", articles / "dev", text, output, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((output / "scores.json").read_text("utf-8"))
    assert found["settings"]["start"] == "gec-en" and len(found["rows"]) == 4
    assert "4 of 4 lines" in (output / "same.txt").read_text("utf-8").splitlines()[1]
    assert (output / "dict.txt").read_text("utf-8").endswith("\n<mask> 0\n")
    assert (output / "start.pt").exists() and (output / "denoised.pt").exists()


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(tmp_path).returncode == 1
    done = run("--help", PYTHON="false")
    assert done.returncode == 0
    none = run("a", "b", "c", tmp_path, PYTHON="false")
    assert none.returncode == 1 and "ROUGE needs the package rouge-score" in none.stderr
