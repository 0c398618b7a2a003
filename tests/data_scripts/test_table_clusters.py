"""data_scripts/table_clusters.py: figures of runs and files, in tables and a picture."""

import json
from pathlib import Path
from typing import Any, Dict

import pytest
import table_clusters
import torch
from PIL import Image

from specdec_plugin.errors import PluginError
from specdec_plugin.vocab.cluster_file import made_for, save_clusters
from tests.support import made, tiny

DECODER = tiny.model(0).decoder


def row(method: str, seconds: float, bleu: float, speed_up: float, same: float) -> Dict[str, Any]:
    return {
        "method": method,
        "bleu": bleu,
        "tokens": 2000,
        "sentences": 50,
        "seconds by part": {"projection": seconds},
        "equal to greedy": same,
        "memory in MB": {"peak": 100 + 100 * seconds},
        table_clusters.SPEED_UP: speed_up,
        table_clusters.BASE_SPEED_UP: 3 * speed_up,
        "p50_ms": 4.0,
        "accepted tokens": 1.0,
    }


def run_of(folder: Path, certified: bool = True, **changes: float) -> str:
    folder.mkdir()
    clustered = {"seconds": 0.02, "bleu": 40.5, "speed_up": 1.75, "same": 47, **changes}
    rows = [row("greedy", 0.2, 40.75, 1.0, 50), row("greedy clustered", **clustered)]
    if certified:
        rows.append(row("greedy certified", 0.05, 40.75, 1.4, 50))
        rows.append(row("specdec self", 0.03, 40.75, 2.5, 50))
    (folder / "results.json").write_text(json.dumps({"rows": rows}), "utf-8")
    return str(folder)


def file_of(path: Path, count: int, top_k: int, neighbours: int = 1) -> str:
    clusters = made.clusters([[2, 3, 4, 5]] * count, 16, 16)
    made_of = DECODER, tiny.dictionary(), "made up"
    save_clusters(made_for(clusters, top_k, *made_of, neighbours), str(path))
    return str(path)


def test_tables_and_picture(tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    torch.save(torch.zeros(100_000), model)
    file = file_of(tmp_path / "a.pt", 5, 3)
    both = [f"en-es={run_of(tmp_path / 'es')}={file}"]
    both.append(f"a=b={run_of(tmp_path / 'ab', certified=False)}={file}")
    grid = []
    for count, k, m in ((5, 1, 1), (9, 1, 1), (5, 3, 1), (5, 3, 4)):
        name = f"{count}-{k}-{m}"
        run = run_of(tmp_path / name, speed_up=count / 4 + k, bleu=40.0 + count / 10)
        grid.append(f"{run}={file_of(tmp_path / f'{name}.pt', count, k, m)}")
    table_clusters.main(
        ["--model", str(model), "--output", str(tmp_path / "out"), "--command", "run.sh"]
        + ["--directions", *both, "--grid", *grid]
    )
    directions, drafted, swept = (
        json.loads((tmp_path / "out" / f"{name}.json").read_text("utf-8"))["rows"]
        for name in ("directions", "drafts", "grid")
    )
    first, second = (list(row.values()) for row in directions)
    assert first[:10] == "en-es,25.0 %,100,25,10,1.40,1.75,40.75,40.50,100.0 %".split(",")
    share = float(first[15].removesuffix(" %"))
    assert first[10:14] == ["94.0 %", "120", "105", "102"] and share == pytest.approx(
        100 * Path(file).stat().st_size / model.stat().st_size, abs=0.06
    )
    assert second[0] == "a=b" and not any("certified" in name for name in directions[1])
    drafts = [list(row.values()) for row in drafted]
    assert drafts[0] == ["en-es", "greedy", "4.0", "3.00", "1.00", "1.0", "100.0 %"]
    assert [row[1:5] for row in drafts[2:]] == [["specdec self", "4.0", "7.50", "2.50"]]
    rows = [list(row.values()) for row in swept]
    assert rows[1] == ["9", "1", "1", "25.0 %", "10", "3.25", "-0.15", "94.0 %"]
    assert [row[:3] for row in rows[2:]] == [["5", "3", "1"], ["5", "3", "4"]]
    assert Image.open(tmp_path / "out" / "grid.png").size[0] > 800


def test_memory_that_the_system_hides(tmp_path: Path) -> None:
    run = table_clusters.run_with("x", run_of(tmp_path / "run"), file_of(tmp_path / "a.pt", 5, 3))
    del run.rows["greedy clustered"]["memory in MB"]
    (cells,) = table_clusters.directions_table([run], 1000).cells
    assert cells[11:14] == ["120", "105", ""]


def test_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = file_of(tmp_path / "a.pt", 2, 1)
    with pytest.raises(PluginError, match="is no report of specdec-bench"):
        table_clusters.run_with("x", str(tmp_path), file)
    folder = run_of(tmp_path / "run")
    (tmp_path / "run" / "results.json").write_text('{"rows": [{"method": "greedy"}]}', "utf-8")
    with pytest.raises(PluginError, match="does not compare clusters"):
        table_clusters.run_with("x", folder, file)
    with pytest.raises(SystemExit):
        table_clusters.main(
            ["--model", "m", "--output", "o", "--command", "x", "--directions", "only=one"]
        )
    assert "only=one: give 3 parts" in capsys.readouterr().err
