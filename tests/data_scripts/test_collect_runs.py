"""data_scripts/collect_runs.py, training_progress.py and active_tokens.py."""

import json
import math
from pathlib import Path
from typing import Any, Dict, List

import active_tokens
import collect_runs
import pytest
import torch
import training_progress
from PIL import Image

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights
from specdec_plugin.vocab.cluster_file import ClusterFile, save_clusters
from specdec_plugin.vocab.clusters import Clusters
from tests.support.command_lines import Corpus, run_cli, train_args

MACHINE = {"processor": "some", "processors": 2, "python": "3", "torch": "2"}


def report(folder: Path, rows: List[Dict[str, Any]], **changes: Any) -> str:
    """A folder as specdec-bench leaves it."""
    folder.mkdir(exist_ok=True)
    found = {"machine": MACHINE, "date": "2026-01-02", "rows": rows, **changes}
    found["command"] = f"specdec-bench {folder.name}"
    (folder / "results.json").write_text(json.dumps(found), "utf-8")
    return str(folder)


def collected(tmp_path: Path, *runs: str, setting: str = "seed=1") -> Dict[str, Any]:
    output = tmp_path / "results" / "table.json"
    collect_runs.main([str(output), "--command", "run.sh x", "--setting", setting, *runs])
    return dict(json.loads(output.read_text("utf-8")))


def test_rows_of_several_runs(tmp_path: Path) -> None:
    grid = [
        {"method": "specdec++, β=1", "top_beta": 1, "tolerance": math.inf, "bleu": 1.5},
        {"method": "specdec++, β=3, τ=2", "top_beta": 3, "tolerance": 2.0, "bleu": 2.5},
        {"method": "greedy", "bleu": 1.5, "acceptance by position": [1.0]},
    ]
    first = report(tmp_path / "a", grid + [{"method": "none", "tolerance": None}])
    batches = [{"method": "greedy", "batch size": size} for size in (1, 8)]
    second = report(tmp_path / "b", batches, date="2026-02-01")
    labels = "drafter=NAT, wide;updates=500;training hours=0.25"
    chosen = "specdec++, β=3, τ=2 -> high quality;specdec++, β=1"
    found = collected(tmp_path, f"{first}|{labels}|{chosen}", f"{second}||greedy", first)
    assert found["machine"] == MACHINE and found["date"] == "2026-02-01"
    assert found["settings"] == {"seed": "1"} and found["command"] == "run.sh x"
    assert found["commands of the runs"] == ["specdec-bench a", "specdec-bench b"]
    labelled = {"drafter": "NAT, wide", "updates": 500, "training hours": 0.25}
    assert found["rows"][:2] == [
        {**labelled, "method": "high quality", "top_beta": 3, "tolerance": 2.0, "bleu": 2.5}
        | {"β": 3, "τ": 2.0},
        {**labelled, "method": "specdec++, β=1", "top_beta": 1, "bleu": 1.5, "β": 1},
    ]
    # A run may have several rows of a method, and one without a choice gives all of its rows.
    assert [row.get("batch size") for row in found["rows"]] == [None, None, 1, 8, *[None] * 4]
    assert "acceptance by position" not in found["rows"][-2]
    assert found["rows"][-1] == {"method": "none"}


def test_guesses_of_jacobi(tmp_path: Path) -> None:
    window = {"jacobi_window": "block", "jacobi_init": "pad", "block_size": 5}
    rows = [{"method": "gs-jacobi", **window, "jacobi_pool": pool} for pool in (0, 9)]
    found = collected(tmp_path, report(tmp_path / "a", rows))["rows"]
    assert [row["guesses"] for row in found] == ["block, pad, no pool", "block, pad, pool"]
    assert all(row["b"] == 5 and "k" not in row for row in found)


def test_runs_that_cannot_stand_together(tmp_path: Path) -> None:
    first = report(tmp_path / "a", [{"method": "greedy"}])
    other = report(tmp_path / "b", [{"method": "greedy"}], machine={**MACHINE, "torch": "3"})
    with pytest.raises(PluginError, match="b was made on another machine"):
        collected(tmp_path, first, other)
    with pytest.raises(PluginError, match=r"has no method 'nat'. It has: greedy."):
        collected(tmp_path, f"{first}||nat")
    with pytest.raises(PluginError, match="is no file of results"):
        collected(tmp_path, str(tmp_path / "none"))
    (tmp_path / "a" / "results.json").write_text("{}", "utf-8")
    with pytest.raises(PluginError, match="Let the run finish"):
        collected(tmp_path, first)
    with pytest.raises(PluginError, match="'drafter' is not NAME=VALUE"):
        collected(tmp_path, f"{first}|drafter")


def test_how_far_a_training_has_come(
    corpus: Corpus, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_cli(train_args(corpus.data_dir, tmp_path, "--max-update", 3))
    file = str(tmp_path / "checkpoint_last.pt")
    found = training_progress.progress_of(file)
    assert found.updates == 3 and 0 < found.hours < 0.1 and found.best is None
    training_progress.main([file])
    assert capsys.readouterr().out == f"3 {found.hours:.4f} -\n"
    state = load_weights(file)
    state["extra_state"]["best"] = 2.345
    torch.save(state, file)
    assert training_progress.progress_of(file).best == 2.345
    torch.save({"model": {}}, file)
    with pytest.raises(PluginError, match="does not record its training"):
        training_progress.progress_of(file)


def clusters(path: Path, tokens: List[List[int]]) -> str:
    """A file of clusters with these active tokens, of ten symbols."""
    count = len(tokens)
    offsets = torch.tensor([0, *map(len, tokens)]).cumsum(0)
    flat = torch.tensor([token for each in tokens for token in each], dtype=torch.int32)
    centroids = torch.zeros(count, 2, dtype=torch.float16)
    found = Clusters(centroids, torch.zeros(count), offsets, flat, 10)
    prints = torch.ones(1, dtype=torch.long), torch.ones(1, dtype=torch.long)
    save_clusters(ClusterFile(found, 1, 1, *prints, "some states"), str(path))
    return str(path)


def test_active_tokens(tmp_path: Path) -> None:
    both = clusters(tmp_path / "both.pt", [[1, 2, 3], [4]])
    target = clusters(tmp_path / "target.pt", [[1, 2, 3, 4, 5], [6]])
    output, figure = tmp_path / "clusters.json", tmp_path / "clusters.png"
    arguments = [str(output), "--figure", str(figure), "--command", "run.sh x"]
    active_tokens.main([*arguments, f"source and target={both}", f"target={target}"])
    rows = json.loads(output.read_text("utf-8"))["rows"]
    assert [row[active_tokens.AT_MOST] for row in rows] == [30, 50]
    assert [row[active_tokens.MEAN] for row in rows] == [20, 30]
    assert [(row["text"], row["clusters"]) for row in rows] == [
        ("source and target", 2),
        ("target", 2),
    ]
    assert Image.open(figure).size[0] > 600
    with pytest.raises(PluginError, match="'x' is not NAME=VALUE"):
        active_tokens.main([*arguments, "x"])
