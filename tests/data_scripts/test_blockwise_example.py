"""examples/blockwise_pydocs/run.sh with tiny models, and the curve that it draws."""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any, List

import plot_speedups
import pytest
from example_results import with_tables
from PIL import Image

from specdec_plugin.errors import PluginError
from tests.support.command_lines import ROOT, run_example
from tests.support.teachers import train_teacher

run = partial(run_example, "blockwise_pydocs")


@pytest.mark.slow
def test_from_text_to_the_table(text: Path, tmp_path: Path) -> None:
    """With a teacher, a verifier and the output of both that are there."""
    given, output = tmp_path / "given", tmp_path / "out"
    train_teacher(text, given, 20)
    output.mkdir()
    shutil.copy(given / "teacher.pt", output / "verifier.pt")
    for folder in ("distilled", "greedy"):
        shutil.copytree(given / "bin", output / folder / "bin")
    shutil.copy(text / "train.en", tmp_path / "more.en")
    tiny = dict(SIZES="3", UPDATES="8", UPDATES_LONG="4", SENTENCES="4", THREADS="1")
    tiny.update(MORE=str(tmp_path / "more"), SHARDS="2")
    done = run(text, output, given, **tiny)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {
        name: json.loads((output / "results" / f"{name}.json").read_text("utf-8"))
        for name in ("quality", "speed")
    }
    assert "UPDATES='8'" in found["quality"]["command"]
    rows = {(row["setting"], row["k"]): row for row in found["quality"]["rows"]}
    settings = ["regular", "distilled", "fine-tuned", "both", "both, top-2", "both, top-3"]
    settings += ["both, ℓ = 2", "both, longer"]
    assert {*rows} == {("regular", 1), ("distilled", 1), *((each, 3) for each in settings)}
    # A frozen model says what it said, and has its BLEU.
    for name in ("regular", "distilled"):
        greedy, drafted = rows[name, 1], rows[name, 3]
        assert drafted["bleu"] == greedy["bleu"]
        assert drafted["equal to greedy"] == drafted["sentences"] == 20
        assert greedy["accepted tokens"] == 1.0 < drafted["accepted tokens"]
    models = list(dict.fromkeys(row["model"] for row in found["speed"]["rows"]))
    assert models == ["distilled, k = 3", "both, k = 3", "both, longer, k = 3"]
    # What the verifier says to the other text stands beside what it says to the corpus.
    wide = output / "blockwise" / "wide"
    assert (wide / "train.en-es.es.bin").exists() and (wide / "train1.en-es.es.bin").exists()
    assert (output / "blockwise" / "curve.png").stat().st_size > 1000
    # The README's comments fit these files.
    shutil.copytree(output / "results", tmp_path / "results")
    readme = (Path(ROOT) / "examples" / "blockwise_pydocs" / "README.md").read_text("utf-8")
    assert with_tables(readme, tmp_path).count("| both, longer, k = 3 |") == 6


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
