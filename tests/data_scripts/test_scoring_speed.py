"""data_scripts/scoring_speed.py: both scorers score the same sentences."""

import json

import pytest
import scoring_speed
import torch


@pytest.mark.usefixtures("threads_again")
def test_the_table(corpus, tiny_verifier, tmp_path, capsys) -> None:
    output = tmp_path / "scoring.json"
    flags = ["-s", "en", "-t", "es", "--path", tiny_verifier, "--output", str(output)]
    scoring_speed.main([corpus.data_dir, *flags, "--repeats", "2", "--batch-sizes", "1", "8"])
    found = json.loads(output.read_text())
    assert {"machine", "date", "command", "commit"} <= found.keys()
    for row, size in zip(found["rows"], (1, 8), strict=True):
        assert row["batch"] == size and row["sentences"] == 21 and row["apart"] < 1e-4
        assert [len(row["seconds"][name]) for name in scoring_speed.SCORERS] == [2, 2]
    assert capsys.readouterr().out.count("\n| ") == 2 and torch.get_num_threads() > 0
