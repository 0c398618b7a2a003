"""examples/blockwise_pydocs/run.sh with tiny models, and the curve that it draws."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, List

import plot_speedups
import pytest
from PIL import Image

from specdec_plugin.errors import PluginError
from tests.support.command_lines import ROOT, Corpus, run_cli, run_example, train_args

run = partial(run_example, "blockwise_pydocs")


@pytest.fixture()
def text(corpus: Corpus, tmp_path: Path) -> Path:
    """The tiny corpus under the names of a user's."""
    folder = tmp_path / "text"
    folder.mkdir()
    for theirs, ours in (("train", "train"), ("dev", "valid"), ("test", "test")):
        for language in ("en", "es"):
            lines = Path(corpus.raw_dir) / f"{ours}.{language}"
            shutil.copy(lines, folder / f"{theirs}.{language}")
    return folder


@pytest.mark.slow
def test_from_text_to_the_table(text: Path, tmp_path: Path) -> None:
    """With a teacher, a verifier and the output of both that are there."""
    given, output = tmp_path / "given", tmp_path / "out"
    run_cli(
        ["python", Path(ROOT) / "data_scripts" / "prepare_subwords.py", "-s", "en", "-t", "es"]
        + ["--size", 60, "--output", given, "--train", text / "train"]
        + ["--valid", text / "dev", "--test", text / "test"]
    )
    run_cli(train_args(given / "bin", given, "--max-update", 20))
    shutil.copy(given / "checkpoint_last.pt", given / "teacher.pt")
    shutil.copy(given / "bin" / "dict.en.txt", given)
    output.mkdir()
    shutil.copy(given / "teacher.pt", output / "verifier.pt")
    for folder in ("distilled", "greedy"):
        shutil.copytree(given / "bin", output / folder / "bin")
    shutil.copy(text / "train.en", tmp_path / "more.en")
    tiny = dict(SIZES="3", UPDATES="8", UPDATES_LONG="4", SENTENCES="0", THREADS="1")
    tiny.update(MORE=str(tmp_path / "more"), SHARDS="2")
    done = run(text, output, given, **tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = (output / "blockwise" / "table.md").read_text("utf-8").splitlines()
    first, last, more = ([cell.strip() for cell in row.split("|")[1:-1]] for row in rows[2:])
    assert len(first) == len(last) == 8 and [first[0], last[0]] == ["1", "3"]
    assert more[0] == "3, 4 updates" and " / " in more[4]
    # What the verifier says to the other text stands beside what it says to the corpus.
    wide = output / "blockwise" / "wide"
    assert (wide / "train.en-es.es.bin").exists() and (wide / "train1.en-es.es.bin").exists()
    assert all(" / " in cell for cell in [*first[1:3], *last[1:]])
    # A frozen model says what it said, and has its BLEU.
    for place, name in ((1, "regular"), (2, "distilled")):
        texts = [output / "blockwise" / "cells" / f"{name}{k}.hyp" for k in (1, 3)]
        assert texts[0].read_text("utf-8") == texts[1].read_text("utf-8")
        bleu, accepted = zip(*(row[place].split(" / ") for row in (first, last)))
        assert bleu[0] == bleu[1] and float(accepted[0]) == 1.0 < float(accepted[1])


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(tmp_path).returncode == 1
    none = run(tmp_path, tmp_path, SIZES=" ")
    assert none.returncode == 1 and "SIZES names no block size" in none.stderr


def report(folder: Path, k: int, **changes: Any) -> str:
    """A folder as specdec-bench leaves it."""
    folder.mkdir(exist_ok=True)
    row = {
        "method": "blockwise",
        "accepted tokens": 0.6 * k,
        plot_speedups.SPEED_UP: 0.4 * k,
        "acceptance by position": [0.5] * (k - 1),
    }
    rows: List[Any] = [{"method": "greedy"}, {**row, **changes}]
    (folder / "results.json").write_text(json.dumps({"rows": rows}), "utf-8")
    return str(folder)


def test_curve(tmp_path: Path) -> None:
    folders = [report(tmp_path / str(k), k) for k in (2, 4, 8)]
    assert plot_speedups.read_point(folders[1], "blockwise") == (2.4, 1.6, 4)
    picture = tmp_path / "new" / "curve.png"
    series = ["--series", "one", *folders, "--series", "two", folders[0]]
    plot_speedups.main(["--output", str(picture), *series])
    assert Image.open(picture).size[0] > 400
    points = [plot_speedups.Point(2.4, 1.6, 4), plot_speedups.Point(1.2, 0.8, 2)]
    line = plot_speedups.draw({"one": points}, "x").axes[0].lines[0]
    assert [*line.get_xdata()] == [1.2, 2.4] and [*line.get_ydata()] == [0.8, 1.6]


@pytest.mark.parametrize("content", [None, "{", "{}"])
def test_runs_that_are_not_finished(content: Any, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "results.json").write_text(content, "utf-8")
    with pytest.raises(PluginError, match="is no report of specdec-bench"):
        plot_speedups.read_point(str(tmp_path), "blockwise")


def test_runs_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="does not compare nat with greedy"):
        plot_speedups.read_point(report(tmp_path, 2), "nat")
    for wrong in (["--series", "one"], ["--series", "a", str(tmp_path)] * 8):
        with pytest.raises(SystemExit):
            plot_speedups.main(["--output", str(tmp_path / "a.png"), *wrong])
