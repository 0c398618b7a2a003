"""data_scripts/training_rounds.py: the rounds of a training, as a file of results."""

import json
from pathlib import Path

import pytest
import training_rounds

from specdec_plugin.errors import PluginError


def test_rounds(tmp_path: Path) -> None:
    (tmp_path / "rounds").write_text("500 0.1614 0.639\n1000 0.3269 0.945\n", "utf-8")
    output = tmp_path / "rounds.json"
    training_rounds.main(
        [str(output), "--command", "run.sh", "--setting", "seed=1", "--figure", "accepted"]
        + [str(tmp_path / "rounds")]
    )
    found = json.loads(output.read_text("utf-8"))
    assert found["rows"] == [
        {"updates": 500, "training hours": 0.1614, "accepted": 0.639},
        {"updates": 1000, "training hours": 0.3269, "accepted": 0.945},
    ]
    assert found["command"] == "run.sh" and found["settings"] == {"seed": "1"}
    assert {"machine", "date", "commit"} <= found.keys()


@pytest.mark.parametrize("line", ["500 0.1 -", "500 0.1", "x 0.1 0.2"])
def test_what_is_no_round(tmp_path: Path, line: str) -> None:
    (tmp_path / "rounds").write_text(f"{line}\n", "utf-8")
    with pytest.raises(PluginError, match="is no file of rounds"):
        training_rounds.rows_of(str(tmp_path / "rounds"), "accepted")
    with pytest.raises(PluginError, match="is no file of rounds"):
        training_rounds.rows_of(str(tmp_path / "missing"), "accepted")
