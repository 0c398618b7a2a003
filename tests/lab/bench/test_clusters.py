"""``specdec-bench`` with clustered and certified projections beside plain ones."""

import json

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.__main__ import main
from tests.support import made


@pytest.fixture
def bench(corpus, tiny_verifier):
    def run(*more):
        fixed = [corpus.data_dir, "-s", "en", "-t", "es", "--path", tiny_verifier]
        fixed += ["--max-len-b", 20, "--threads", 1]
        main([*map(str, fixed), *map(str, more)])

    return run


def test_side_by_side(bench, corpus, tiny_verifier, tmp_path, capsys):
    path = made.file_for(corpus, tiny_verifier, tmp_path / "all.pt", share=1.0)
    names = "greedy,greedy clustered,specdec self,specdec self clustered"
    names += ",specdec self clustered drafts,specdec self certified clustered drafts"
    both = ["--vocab-clusters", path, "--drafter-vocab-clusters", path]
    bench("--methods", names, *both, "--output", tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["rows"]
    assert [row["method"] for row in rows] == names.split(",")
    assert all(row["equal to greedy"] == 21 for row in rows)
    assert all(row["seconds by part"]["projection"] > 0 for row in rows)
    # Operations depend on the states where anything is clustered.
    counted = [row["method"] for row in rows if "GFLOPs a sentence" in row]
    assert counted == ["greedy", "specdec self"]
    assert "| projection, µs a token |" in capsys.readouterr().out


def test_certified_beside_plain(bench, tmp_path):
    names = "fairseq beam 1,greedy,greedy certified,specdec self certified"
    bench("--methods", names, "--output", tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "results.json").read_text("utf-8"))["rows"]
    assert [row["method"] for row in rows] == names.split(",")
    assert all(row["equal to fairseq greedy"] == 21 for row in rows[1:])


def test_refusals(bench):
    with pytest.raises(PluginError, match="greedy clustered needs clusters"):
        bench("--methods", "greedy clustered")
    with pytest.raises(PluginError, match=r"--vocab-clusters a\.pt would have no effect"):
        bench("--methods", "greedy", "--vocab-clusters", "a.pt")
    with pytest.raises(PluginError, match="drafts needs clusters: add --drafter-vocab-clusters"):
        bench("--methods", "specdec self clustered drafts")
    with pytest.raises(PluginError, match="add 'specdec self clustered drafts'"):
        bench("--methods", "specdec self", "--drafter-vocab-clusters", "a.pt")
