"""The file of clusters: what survives, what it weighs, and what is refused."""

import os

import pytest
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.vocab.cluster_file import check_clusters, load_clusters, made_for, save_clusters
from tests.support import made, tiny


@pytest.fixture(scope="module")
def decoder():
    return tiny.model().decoder


@pytest.fixture
def file(decoder):
    clusters = made.random_clusters(5, 16, 16, share=0.3, always=[2, 3], never=[1])
    return made_for(clusters, 3, decoder, tiny.dictionary(), "en-es, 70 states", neighbours=4)


@pytest.fixture
def path(file, tmp_path):
    save_clusters(file, str(tmp_path / "folder" / "clusters.pt"))
    return str(tmp_path / "folder" / "clusters.pt")


def test_everything_survives(file, path):
    found = load_clusters(path)
    for mine, theirs in zip(found.clusters, file.clusters, strict=True):
        assert torch.equal(torch.as_tensor(mine), torch.as_tensor(theirs))
    assert (found.top_k, found.neighbours, found.note) == (3, 4, "en-es, 70 states")
    assert os.listdir(os.path.dirname(path)) == ["clusters.pt"]


def test_2000_clusters_are_small(decoder, tmp_path):
    # d=512, 6+6 layers, 32,000 symbols, in float32; 6 % of the symbols are active.
    parameters = 32000 * 512 + 6 * (3 * 4 + 4 * 4) * 512 * 512
    clusters = made.random_clusters(2000, 512, 32000, share=0.06)
    path = str(tmp_path / "large.pt")
    save_clusters(made_for(clusters, 3, decoder, tiny.dictionary(), ""), path)
    assert os.path.getsize(path) < 0.15 * 4 * parameters


def test_it_belongs_to_a_decoder_and_a_dictionary(file, path, decoder):
    symbols, other = tiny.dictionary(), tiny.model(1).decoder
    check_clusters(path, file, decoder, symbols, "--flag")
    check_clusters(path, file, other, symbols, "--flag", others=[decoder])
    check_clusters(path, file, tiny.model().half().decoder, symbols, "--flag")
    with pytest.raises(PluginError, match=r"--flag .* another checkpoint \(en-es, 70 states\)"):
        check_clusters(path, file, other, symbols, "--flag")
    with pytest.raises(PluginError, match="another target dictionary"):
        check_clusters(path, file, decoder, tiny.dictionary(11), "--flag")
    narrow = file._replace(clusters=made.random_clusters(5, 8, 16, share=0.3))
    with pytest.raises(PluginError, match="states of 8 numbers, and the decoder has 16 and 16"):
        check_clusters(path, narrow, decoder, symbols, "--flag")


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def test_unreadable_files(path, tmp_path):
    with pytest.raises(PluginError, match="Cluster file not found"):
        load_clusters(str(tmp_path / "missing.pt"))
    with open(path, "rb") as whole:
        half = whole.read()[:-600]
    with open(path, "wb") as cut:
        cut.write(half)
    with pytest.raises(PluginError, match="not a file that specdec-cluster-vocab wrote"):
        load_clusters(path)
    torch.save({"model": {}}, path)
    with pytest.raises(PluginError, match="holds no vocabulary clusters"):
        load_clusters(path)
    marker = str(tmp_path / "marker")
    torch.save({"kind": Hostile(marker)}, path)
    with pytest.raises(PluginError, match="was refused"):
        load_clusters(path)
    assert not os.path.exists(marker)


CONTRADICTIONS = {
    "vocabulary": [0, -3, 2**40, "16", 24],
    "top_k": [0, None],
    "neighbours": [0, 2.0],
    "note": [3],
    "centroids": [
        torch.ones(5, 16),
        torch.ones(16).half(),
        torch.full((5, 16), float("nan")).half(),
        torch.ones(1).half().expand(2**20, 2**20),
        torch.ones(4, 16).half(),
        torch.ones(5, 0).half(),
        torch.ones(16).half().expand(5, 16),
    ],
    "norms": [torch.ones(4), torch.full((5,), float("inf")), torch.ones(5).double()],
    "tokens": [
        torch.zeros(5, 2, dtype=torch.uint8),
        torch.ones(3, dtype=torch.uint8),
        torch.empty(0, dtype=torch.uint8),
        [1, 2],
    ],
    "decoder": [torch.ones(1), None],
    "dictionary": [None],
}


@pytest.mark.parametrize(
    "name, value", [(name, value) for name, values in CONTRADICTIONS.items() for value in values]
)
def test_contradictions(path, name, value):
    state = torch.load(path, weights_only=True)
    torch.save({**state, name: value}, path)
    with pytest.raises(PluginError, match="contradict themselves"):
        load_clusters(path)
    del state[name]
    torch.save(state, path)
    with pytest.raises(PluginError, match="contradict themselves"):
        load_clusters(path)
