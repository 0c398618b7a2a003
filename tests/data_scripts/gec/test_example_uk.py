"""examples/gec_uk/run.sh on a little Ukrainian text, with tiny models: all tables."""

import json
import random
from functools import partial
from pathlib import Path
from typing import List

import pytest

from tests.support.command_lines import run_example

TINY = dict(
    PASSES="2", UPDATES="2", UPDATES_REAL="2", UPDATES_TUNE="2", SIZE="130", DIM="16", LAYERS="1",
    BIASES="0 1", SENTENCES="3", SAMPLES="20", THREADS="1",
    MAX_LENGTH="12",
)  # fmt: skip
SUBJECTS = "Вона;Мій брат;Нова вчителька;Вони;Їхня донька;Той чоловік;Я".split(";")
VERBS = "читає бачить купує любить забула знайшов пише".split()
OBJECTS = "книгу;нову дорогу;листа;своє місто;великий сад;їжу".split(";")
run = partial(run_example, "gec_uk")


def sentences(count: int, seed: int) -> List[str]:
    draw = random.Random(seed)
    parts = (
        [draw.choice(words) for words in (SUBJECTS, VERBS, OBJECTS, VERBS, OBJECTS)]
        for _ in range(count)
    )
    return ["{} {} {} — вже {} , але {} .".format(*words) for words in parts]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Pairs in which dashes and a word are wrong; one sentence has two corrections."""
    folder = tmp_path / "ua-gec"
    folder.mkdir()
    for part, count in (("train", 200), ("dev", 5)):
        right = sentences(count, seed=count)
        wrong = [line.replace(" — ", " - ") for line in right]
        if part == "dev":
            right.append(right[0].replace("вже", "уже"))
            wrong.append(wrong[0])
        for side, lines in (("src", wrong), ("tgt", right)):
            (folder / f"{part}.{side}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return folder


@pytest.mark.slow
def test_from_text_to_tables(corpus: Path, tmp_path: Path) -> None:
    text, output = tmp_path / "text.uk", tmp_path / "out"
    text.write_text("".join(f"{line}\n" for line in sentences(80, seed=1)), "utf-8")
    done = run(corpus, text, output, **TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {
        row["system"]: row["scores"]
        for row in json.loads((output / "scores.json").read_text())["rows"]
    }
    assert len(rows) == 5 and "M2 F0.5 gain" not in rows["real pairs only"]
    assert rows["made errors, real pairs"].keys() >= {"M2 F0.5", "M2 F0.5 gain", "M2 recall"}
    same = (output / "same.txt").read_text("utf-8").splitlines()
    assert len(same) == 6 and all("5 of 5 lines" in line for line in same)
    assert (output / "bench" / "edit-ratio.png").exists()
    assert (output / "real" / "dev.m2").read_text("utf-8").count("\nS ") == 4
    assert (output / "noise" / "pass-1.err").read_bytes() != (
        output / "noise" / "pass-2.err"
    ).read_bytes()

    # Again: nothing that is there is made again.
    times = {path: path.stat().st_mtime_ns for path in output.rglob("*") if path.is_file()}
    again = run(corpus, text, output, **TINY)
    assert again.returncode == 0, again.stdout + again.stderr
    changed = {path.name for path, time in times.items() if path.stat().st_mtime_ns != time}
    assert changed <= {"scores.json", "same.txt"}


def test_refusals(corpus: Path, tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(corpus).returncode == 1
    none = run(tmp_path / "none", "text", tmp_path / "out", forked=True)
    assert none.returncode == 1 and "is no folder. Give UA-GEC's." in none.stderr
    missing = run(corpus, tmp_path / "none.uk", tmp_path / "out", forked=True)
    assert missing.returncode == 1 and "is not there. Check the name." in missing.stderr
