"""examples/jacobi/run.sh with a tiny model: the benchmarks, their files and the page."""

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
from example_results import ROOT, with_tables

from tests.support.command_lines import SCRIPTS, run_cli, run_example, train_args

run = partial(run_example, "jacobi")


@pytest.mark.slow
def test_from_text_to_tables(text: Path, tmp_path: Path) -> None:
    given, output = tmp_path / "given", tmp_path / "out"
    run_cli(
        ["python", SCRIPTS / "prepare_subwords.py", "-s", "en", "-t", "es", "--size", 60]
        + ["--output", given, "--train", text / "train"]
        + ["--valid", text / "dev", "--test", text / "test"]
    )
    run_cli(train_args(given / "bin", given, "--max-update", 20))
    shutil.copy(given / "checkpoint_last.pt", given / "verifier.pt")
    shutil.copy(given / "bin" / "dict.en.txt", given)
    settings = dict(MODELS=str(given), SENTENCES="6", THREADS="1")
    done = run(text, output, **settings)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    rows = {
        path.stem: json.loads(path.read_text("utf-8"))["rows"]
        for path in (output / "results").glob("*.json")
    }
    assert {*rows} == {"methods", "guesses", "threads"}
    assert all(row["equal to fairseq greedy"] == row["sentences"] for row in rows["guesses"])
    assert (output / "ddgviz" / "index.html").exists()
    # The README's comments fit these files.
    shutil.copytree(output / "results", tmp_path / "results")
    readme = (ROOT / "examples" / "jacobi" / "README.md").read_text("utf-8")
    filled = with_tables(readme, tmp_path)
    assert "| adaptive, ngram, pool |" in filled and "| method | threads = 1 |" in filled


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(tmp_path).returncode == 1
