"""data_scripts/large_model.py, with a small one."""

import json
from pathlib import Path

import large_model
import pytest

from specdec_plugin.errors import PluginError

SMALL = "--dim 16 --ffn 24 --heads 2 --layers 1 --symbols 60 --sentences 2 --length 5".split()


@pytest.mark.slow
def test_the_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, output = str(tmp_path / "model"), tmp_path / "large.json"
    flags = ["--folder", folder, "--output", str(output), "--ways", "fairseq beam 1", "greedy"]
    large_model.main([*SMALL, *flags])
    found = json.loads(output.read_text())["ways"]
    assert [*found] == ["fairseq beam 1", "greedy"]
    for each in found.values():
        assert each["peak"] > 1e8 and each["tokens_a_second"] > 0 and each["seconds"] > 0
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(rows) == 4 and rows[3].startswith("| greedy |")


def test_a_failing_process_is_shown(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="--decoding greedy failed"):
        large_model.run(tmp_path, "test", ["--decoding", "greedy"])
