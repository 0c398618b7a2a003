"""data_scripts/time_projection.py: it times what it says."""

import json
from pathlib import Path

import pytest
import time_projection
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.vocab.clustered_linear import ClusteredLinear


def test_states_have_the_active_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    plain = ClusteredLinear.scores

    def scores(self, inputs, never):
        found = plain(self, inputs, never)
        seen.append(found[0].isfinite().sum(1))
        return found

    monkeypatch.setattr(time_projection, "BETWEEN", 10)
    monkeypatch.setattr(ClusteredLinear, "scores", scores)
    found = time_projection.time_case(time_projection.Case(400, 32, 0.25, 20), 3, 5)
    assert found.keys() == {"torch", "full", "clusters"} and min(found.values()) > 0
    assert torch.stack(seen).eq(100).all() and len(seen) == 5


def test_the_table_and_its_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(time_projection, "BETWEEN", 10)
    output = tmp_path / "times.json"
    flags = "--symbols 50 90 --dim 8 --clusters 9 --active 0.5 --repeats 3".split()
    time_projection.main([*flags, "--output", str(output)])
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [row.split(" | ")[0] for row in rows] == ["| symbols", "| 50", "| 90"]
    found = json.loads(output.read_text("utf-8"))
    assert found["command"].startswith("time_projection.py --symbols 50 90")
    assert found["settings"]["repeats"] == 3 and {"machine", "date", "commit"} <= found.keys()
    for row in found["rows"]:
        assert row["active"] == "50 %" and row["full ms"] > 0


@pytest.mark.parametrize("flags", ["--active 0", "--clusters 3", "--rows 0", "--symbols 0"])
def test_refusals(flags: str) -> None:
    with pytest.raises(PluginError, match="--"):
        time_projection.main(flags.split())
