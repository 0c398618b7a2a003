"""examples/gec/run.sh on a little text, with a tiny model: from raw text to the tables."""

import gzip
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Dict

import pytest

from tests.support.clean_text import sentences
from tests.support.command_lines import run_example

TINY = dict(
    UPDATES="2", PASSES="1", WORD_LINES="5", SIZE="120", DIM="16", LAYERS="1", HELD_OUT="3",
    THREADS="1",
)  # fmt: skip
run = partial(run_example, "gec")


@pytest.fixture()
def corpus(tmp_path: Path) -> Path:
    """Training text in two folders, one of them packed; a line that is too short and one twice."""
    folder = tmp_path / "corpus"
    for name in ("one", "two"):
        (folder / name).mkdir(parents=True)
    lines = ["".join(f"{line}\n" for line in sentences(60, seed)) for seed in range(4)]
    (folder / "one" / "train.en").write_text("Too short\n" + lines[0], "utf-8")
    (folder / "two" / "train.en.gz").write_bytes(gzip.compress((lines[0] + lines[1]).encode()))
    (folder / "one" / "dev.en").write_text(lines[2], "utf-8")
    (folder / "two" / "test.en").write_text(lines[3], "utf-8")
    return folder


@pytest.fixture()
def jfleg(tmp_path: Path) -> Path:
    """Three sentences in the form of JFLEG."""
    folder = tmp_path / "jfleg"
    folder.mkdir()
    (folder / "dev.src").write_text("A user write .\n\nThe file are open .\n", "utf-8")
    for reference in range(4):
        text = "A user writes .\n\nThe file is open .\n"
        (folder / f"dev.ref{reference}").write_text(text, "utf-8")
    edit = "A 2 3|||R|||{}|||REQUIRED|||-NONE-|||0\n\n"
    m2 = f"S A user write .\n{edit}S \n\nS The file are open .\n{edit}".format("writes", "is")
    (folder / "dev.ref.m2.gz").write_bytes(gzip.compress(m2.encode()))
    return folder


def equal_lines(folder: Path) -> Dict[str, str]:
    """How many lines of each decoding are fairseq's; each has scores."""
    lines = (folder / "same.txt").read_text("utf-8").splitlines()
    found = dict(line.removesuffix(" lines as fairseq-beam-1").split(": ") for line in lines)
    collected = json.loads((folder / "scores.json").read_text("utf-8"))
    assert collected["command"].endswith("examples/gec/run.sh CORPUS OUTPUT")
    assert [row["system"] for row in collected["rows"]] == [*found]
    assert all({"M2 F0.5", "GLEU"} <= row["scores"].keys() for row in collected["rows"])
    return found


@pytest.mark.slow
def test_from_text_to_tables(corpus: Path, jfleg: Path, tmp_path: Path) -> None:
    output, work = tmp_path / "out", tmp_path / "out" / "correct"
    done = run(corpus, output, **TINY, DECODINGS="input-guided", SENTENCES="0")
    assert done.returncode == 0, done.stdout + done.stderr
    text = (output / "text" / "train.en").read_text("utf-8").splitlines()
    assert len(text) == len({*text}) > 60 and "Too short" not in text
    assert not any(line.endswith("quickly.") for line in text)  # tokenised
    same = {"fairseq-beam-1": "3 of 3", "input-guided": "3 of 3"}
    assert equal_lines(work / "test") == same

    # Again, for what was left out before.
    times = {path: path.stat().st_mtime_ns for path in work.rglob("*") if path.is_file()}
    (work / "jfleg" / "bench").mkdir(parents=True)
    (work / "jfleg" / "bench" / "results.md").touch()
    (work / "jfleg" / "fairseq-beam-1.hyp").write_text("A user writes .\n\nFile\n", "utf-8")
    again = run(corpus, output, **TINY, DECODINGS="", SENTENCES="1", JFLEG=str(jfleg))
    assert again.returncode == 0, again.stdout + again.stderr
    assert "input-guided" in (work / "test" / "bench" / "results.md").read_text("utf-8")
    assert equal_lines(work / "jfleg") == {"fairseq-beam-1": "3 of 3"}
    changed = {path.name for path, time in times.items() if path.stat().st_mtime_ns != time}
    assert changed == {"same.txt", "scores.json"}

    # With that model for another output, and trained on for the other task.
    ship = tmp_path / "ship"
    ship.mkdir()
    for file in ("model.pt", "data/spm.model", "data/bin/dict.err.txt"):
        shutil.copy(work / file, ship)
    given = run(corpus, tmp_path / "given", ship, **TINY, DECODINGS="", SENTENCES="0")
    assert given.returncode == 0, given.stdout + given.stderr
    folder = tmp_path / "given" / "correct"
    assert not [*folder.glob("data/bin/train*")] and not (folder / "model.pt").exists()
    hypotheses = [path / "test" / "fairseq-beam-1.hyp" for path in (work, folder)]
    assert hypotheses[0].read_text("utf-8") == hypotheses[1].read_text("utf-8")
    restore = dict(TINY, TASK="restore", FROM=str(ship), SIZE="no number")
    trained = run(corpus, output, **restore, DECODINGS="", SENTENCES="0")
    assert trained.returncode == 0, trained.stdout + trained.stderr
    assert (output / "restore" / "model.pt").exists()
    assert f"loading pretrained model from {ship / 'model.pt'}" in trained.stdout + trained.stderr


@pytest.mark.slow
def test_pairs_to_restore(corpus: Path, tmp_path: Path) -> None:
    """With all steps done but the first two."""
    output, work = tmp_path / "out", tmp_path / "out" / "restore"
    for done in ("data/bin/dict.cor.txt", "model.pt", "test.m2", "test/fairseq-beam-1.hyp"):
        (work / done).parent.mkdir(parents=True, exist_ok=True)
        (work / done).write_text("a\n", "utf-8")
    scores = {"GLEU": {"score": 4.0, "low": 3.0, "high": 5.5}}
    scored = {"sentences": 1, "settings": {}, "scores": scores}
    (work / "test" / "fairseq-beam-1.json").write_text(json.dumps(scored), "utf-8")
    finished = run(corpus, output, **TINY, TASK="restore", DECODINGS="", SENTENCES="0")
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "| fairseq-beam-1 | 4.00 (3.0 to 5.5) |\n" in finished.stdout
    assert "fairseq-beam-1: 1 of 1 lines" in finished.stdout
    wrong, right = [(work / f"pairs/test.{side}").read_text("utf-8") for side in ("err", "cor")]
    assert wrong.count("\n") == right.count("\n") == 3
    assert "," in right and "," not in wrong and wrong[0] == right[0].lower() != right[0]


def test_a_model_that_is_not_there(corpus: Path, tmp_path: Path) -> None:
    done = run(corpus, tmp_path / "out", tmp_path)
    assert done.returncode == 1 and "holds no model.pt" in done.stderr


@pytest.mark.parametrize(
    "settings, told",
    [
        ({"TASK": "translate"}, "TASK=translate is neither"),
        ({"TASK": "restore", "JFLEG": "somewhere"}, "JFLEG is about TASK=correct"),
        ({"SUFFIX": "xx"}, "holds no text in train.xx"),
    ],
)
def test_refusals(settings: Dict[str, str], told: str, corpus: Path, tmp_path: Path) -> None:
    done = run(corpus, tmp_path / "out", **settings)
    assert done.returncode == 1 and told in done.stderr


def test_help() -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run().returncode == 1
