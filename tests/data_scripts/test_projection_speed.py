"""data_scripts/projection_speed.py: it times what it says."""

import json

import projection_speed
import pytest
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.vocab.clustered_projection import ClusteredProjection

TINY = "--device cpu --symbols 300 --dims 8,16 --rows 1,3 --clusters 7 --repeats 2".split()
TINY += "--active-least 5 --active-most 20".split()


def test_the_table_and_the_file(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "speed.json"
    projection_speed.main([*TINY, "--output", str(path)])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [
        ["| 8", "1"], ["| 8", "3"], ["| 16", "1"], ["| 16", "3"]
    ]  # fmt: skip
    written = json.loads(path.read_text("utf-8"))
    assert written["machine"]["torch"] == torch.__version__
    for row in written["rows"]:
        assert 5 <= row["active tokens"] <= 20
        assert {*row["seconds"]} == {*projection_speed.WAYS} and min(row["seconds"].values()) > 0


def test_the_states_of_a_graph_have_clusters_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    plain = ClusteredProjection.best_of

    def best_of(self, hidden, *more):
        seen.append(self.scores(hidden).values.isfinite())
        return plain(self, hidden, *more)

    monkeypatch.setattr(ClusteredProjection, "best_of", best_of)
    args = [*TINY, "--clusters", "50", "--rows", "3", "--dims", "16"]
    projection_speed.measured(projection_speed.get_parser().parse_args(args))
    calls = torch.cat(seen[2 : 2 + projection_speed.CALLS])
    assert len(calls.unique(dim=0)) == 3 * projection_speed.CALLS


def test_wrong_results_are_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = ClusteredProjection.best_of
    found = []

    def best_of(self, *arguments):
        found.append(plain(self, *arguments))
        return found[-1][0], found[-1][1] + len(found)

    monkeypatch.setattr(ClusteredProjection, "best_of", best_of)
    with pytest.raises(PluginError, match="Log-probabilities"):
        projection_speed.main(TINY)


@pytest.mark.parametrize("flags", ["--active-most 301", "--active-least 0", "--clusters 0"])
def test_refusals(flags: str) -> None:
    with pytest.raises(PluginError, match="--"):
        projection_speed.main([*TINY, *flags.split()])
