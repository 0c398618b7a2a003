"""k-means and active tokens against what they say of themselves."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.vocab import kmeans
from specdec_plugin.vocab.active import build_clusters, chained
from specdec_plugin.vocab.kmeans import cluster
from specdec_plugin.vocab.store import States, StateStore
from tests.support import made

CENTRES = 10 * torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, -1, -1]])


@pytest.fixture
def states(tmp_path):
    """Four groups of 50, whose tokens are 10 and 20 more than the group's number, and noise."""
    torch.manual_seed(0)
    store = StateStore(str(tmp_path / "states"), {}, 3, 3)
    for _ in range(5):
        group = torch.arange(4).repeat(10)
        tokens = torch.stack([group + 10, group + 20, torch.randint(30, 40, (40,))], dim=1)
        store.append(CENTRES[group] + torch.randn(40, 3) / 9, tokens)
    return States([str(tmp_path / "states")])


class FakeKMeans:
    """Has faiss's face."""

    def __init__(self, dim, count, **options):
        self.count, self.options = count, options

    def train(self, sample):
        assert sample.dtype == np.float32 and sample.flags.c_contiguous
        from sklearn.cluster import KMeans

        self.centroids = KMeans(self.count, random_state=0).fit(sample).cluster_centers_


@pytest.mark.parametrize("backend", ["faiss", "scikit-learn"])
def test_finds_the_groups(states, backend, monkeypatch):
    fake = SimpleNamespace(Kmeans=FakeKMeans) if backend == "faiss" else None
    monkeypatch.setitem(sys.modules, "faiss", fake)
    found = cluster(states, 4, seed=1)
    assert found.shape == (4, 3) and found.dtype == torch.float32
    closest = torch.cdist(CENTRES, found).min(1)
    assert sorted(closest.indices.tolist()) == [0, 1, 2, 3]
    assert closest.values.max() < 0.2


def test_fewer_states_than_groups_may_come_first(states, monkeypatch):
    """The short end of a folder, which cannot give the first centroids."""
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(kmeans, "CHUNK", 199)
    seed = next(seed for seed in range(99) if len(next(states.chunks(seed, 199))[0]) == 1)
    assert cluster(states, 4, seed).isfinite().all()


def test_active_tokens_are_the_unions(states):
    built = build_clusters(states, CENTRES, 2, 50, always=[2, 3], suppressed_id=1)
    expected = [[2, 3, 10 + group, 20 + group] for group in range(4)]
    assert made.sets_of(built) == expected
    assert torch.equal(built.centroids, CENTRES.half())
    assert torch.equal(built.norms, CENTRES.square().sum(1))
    assert (built.vocabulary, built.size, built.largest) == (50, 4, 4)
    assert built.active_share == pytest.approx(4 / 50)


def test_neighbours_have_the_tokens_too(states):
    """The first three groups are near each other, and the last is as far from each of them."""
    built = build_clusters(states, CENTRES, 1, 50, always=[2], suppressed_id=1, neighbours=3)
    assert made.sets_of(built) == [*3 * [[2, 10, 11, 12, 13]], [2, 13]]
    built = build_clusters(states, CENTRES, 1, 50, always=[2], suppressed_id=1, neighbours=9)
    assert made.sets_of(built) == 4 * [[2, 10, 11, 12, 13]]


def test_clusters_follow_others_that_are_like_them():
    torch.manual_seed(0)
    places = torch.arange(40.0)[torch.randperm(40)]
    places[places == 0], places[0] = places[0].clone(), 0.0
    line = places[:, None] * torch.tensor([1.0, -2.0, 0.5])
    assert line[chained(line)][:, 0].tolist() == list(range(40))


def test_padding_is_never_active_and_empty_clusters_are_left_out(states):
    centroids = torch.cat([CENTRES[:1], torch.full((1, 3), 99.0), CENTRES[1:]])
    built = build_clusters(states, centroids, 1, 50, always=[2, 11], suppressed_id=10)
    assert made.sets_of(built) == [[2, 11], [2, 11], [2, 11, 12], [2, 11, 13]]
    assert torch.equal(built.centroids, CENTRES.half())


def test_refusals(states, monkeypatch):
    with pytest.raises(PluginError, match="--clusters 201 of 200 states"):
        cluster(states, 201, 1)
    monkeypatch.setattr(kmeans, "_module", lambda name: None)
    with pytest.raises(PluginError, match=r"specdec-plugin\[cluster\]"):
        cluster(states, 2, 1)
