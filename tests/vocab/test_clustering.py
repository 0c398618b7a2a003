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


class NotedKMeans:
    """Has the faces of both libraries, and keeps what it was given."""

    def __init__(self, *sizes, **options):
        self.sizes, self.options, self.given = sizes, options, []
        NotedKMeans.last = self

    def train(self, sample):
        self.given.append(sample)
        self.centroids = np.zeros((self.sizes[1], 3))

    def partial_fit(self, batch):
        self.given.append(batch)
        self.cluster_centers_ = np.zeros((self.sizes[0], 3))


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


@pytest.mark.parametrize(
    "a_centroid, numbers, held",
    [(50, 10**6, 150), (99, 10**6, 200), (50, 3 * 70, 70)],
    ids=["by clusters", "all", "by memory"],
)
def test_faiss_holds_no_more_than_it_needs(states, a_centroid, numbers, held, monkeypatch):
    monkeypatch.setattr(kmeans, "_STATES_A_CENTROID", a_centroid)
    monkeypatch.setattr(kmeans, "_MOST_NUMBERS", numbers)
    monkeypatch.setitem(sys.modules, "faiss", SimpleNamespace(Kmeans=NotedKMeans))
    cluster(states, 3, seed=7, hidden=True)
    made_with = NotedKMeans.last
    (sample,) = made_with.given
    assert sample.shape == (held, 3) and made_with.sizes == (3, 3)
    assert len(np.unique(sample, axis=0)) == held
    # Else faiss would draw fewer states again, or warn of few.
    expected = {"seed": 7, "max_points_per_centroid": a_centroid, "min_points_per_centroid": 1}
    assert expected.items() <= made_with.options.items()
    assert not made_with.options["verbose"]


def test_mini_batches_are_all_states_in_each_pass(states, monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr("sklearn.cluster.MiniBatchKMeans", NotedKMeans)
    monkeypatch.setattr(kmeans, "CHUNK", 30)
    cluster(states, 20, seed=7)
    made_with = NotedKMeans.last
    assert made_with.sizes == (20,)
    assert made_with.options == {"batch_size": 40, "n_init": 1, "random_state": 7}
    assert [len(batch) for batch in made_with.given] == 15 * [40]
    passes = [np.concatenate(made_with.given[turn : turn + 5]) for turn in (0, 5, 10)]
    ((whole, _),) = states.chunks()
    for seen in passes[1:]:  # in the first pass, a sample stands for the first batch
        assert np.array_equal(np.sort(seen, axis=0), np.sort(whole, axis=0))
    assert not np.array_equal(passes[1], passes[2])
    monkeypatch.setattr(kmeans, "CHUNK", 64)
    cluster(states, 20, seed=7)
    assert max(map(len, NotedKMeans.last.given)) == 64


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


def test_clusters_are_stored_in_that_order(states):
    """With their sets, whatever the order in which they were found."""
    centroids = CENTRES[[3, 0, 2, 1]] + torch.tensor([[0.0], [1], [3], [2]])
    built = build_clusters(states, centroids, 2, 50, always=[2], suppressed_id=1)
    order = chained(centroids)
    assert order.tolist() != sorted(order.tolist())
    assert torch.equal(built.centroids, centroids[order].half())
    groups = [[3, 0, 2, 1][own] for own in order]
    assert made.sets_of(built) == [[2, 10 + group, 20 + group] for group in groups]


def test_a_neighbour_alone_does_not_keep_a_cluster(states):
    centroids = torch.cat([CENTRES, torch.tensor([[0.0, 0, 1]])])  # the second nearest to some
    built = build_clusters(states, centroids, 1, 50, always=[2], suppressed_id=1, neighbours=2)
    assert torch.equal(built.centroids.sort(0).values, CENTRES.half().sort(0).values)


def test_padding_is_never_active_and_empty_clusters_are_left_out(states):
    centroids = torch.cat([CENTRES[:1], torch.full((1, 3), 99.0), CENTRES[1:]])
    built = build_clusters(states, centroids, 1, 50, always=[2, 10, 11], suppressed_id=10)
    assert made.sets_of(built) == [[2, 11], [2, 11], [2, 11, 12], [2, 11, 13]]
    assert torch.equal(built.centroids, CENTRES.half())


def test_refusals(states, monkeypatch):
    for count in (0, 201):
        with pytest.raises(PluginError, match=f"--clusters {count} of 200 states"):
            cluster(states, count, 1)
    assert cluster(states, 200, 1).shape == (200, 3)
    monkeypatch.setattr(kmeans, "_module", lambda name: None)
    with pytest.raises(PluginError, match=r"specdec-plugin\[cluster\]"):
        cluster(states, 2, 1)
