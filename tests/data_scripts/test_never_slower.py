"""data_scripts/never_slower.py: methods take turns with greedy decoding."""

import json

import never_slower
import pytest
import torch

from specdec_plugin.errors import PluginError


def test_rows_of_a_random_model_are_kept(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "slower.json"
    args = ["--random", "tiny", "8", "2", "20", "6", "--output", str(output)]
    args += ["--methods", "specdec+drafter,blockwise,auto", "--sentences", "4", "--passes", "2"]
    args += ["--threads", "1", "--folder", str(tmp_path / "made")]
    before = torch.get_num_threads()
    try:
        never_slower.main([*args, "--batch-sizes", "2"])
        first = json.loads(output.read_text())["rows"]
        never_slower.main([*args, "--batch-sizes", "1,2"])
    finally:
        torch.set_num_threads(before)
    kept, new = json.loads(output.read_text())["rows"]
    assert [kept] == first and (kept["batch"], new["batch"]) == (2, 1)
    for cell in (kept, new):
        assert list(cell["seconds"]) == ["greedy", "specdec+drafter", "blockwise", "auto"]
        assert all(len(each) == 2 and min(each) > 0 for each in cell["seconds"].values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("| tiny | 2 | ") and lines[-1].startswith("| tiny | 1 | ")


def test_a_method_that_is_none(tmp_path) -> None:
    output = tmp_path / "slower.json"
    with pytest.raises(PluginError, match=r"no method guess\. Methods are specdec, "):
        never_slower.main(["--methods", "specdec,guess", "--output", str(output)])
    assert not output.exists()
