"""The clustered projection against a full one that is masked afterwards."""

import math

import pytest
import torch
import torch.nn.functional as F

from specdec_plugin.engine.barred import Barred
from specdec_plugin.vocab.clustered_linear import ClusteredLinear
from specdec_plugin.vocab.clustered_projection import ClusteredProjection
from tests.support import made
from tests.support.architectures import VOCABULARY, build_model
from tests.support.heads import blockwise_model

pytestmark = pytest.mark.usefixtures("seeded")


def naive(inputs, weight, bias, clusters):
    """A row at a time: the full product, of which the row's own cluster is kept."""
    rows, sets = [], made.sets_of(clusters)
    centroids = clusters.centroids.double()
    for each in inputs.double():
        own = int((centroids - each).square().sum(1).argmin())
        full = F.linear(each, weight.double(), None if bias is None else bias.double())
        row = torch.full_like(full, -math.inf)
        row[sets[own]] = full[sets[own]]
        rows.append(row)
    return torch.stack(rows).float()


@pytest.mark.parametrize("rows", [1, 2, 5, 33, 70])
@pytest.mark.parametrize("share", [0.02, 0.3, 0.9])
@pytest.mark.parametrize("vocabulary, dim", [(300, 16), (299, 21)])
@pytest.mark.parametrize("with_bias", [True, False])
def test_is_the_masked_full_product(rows, share, vocabulary, dim, with_bias, backend):
    weight, inputs = torch.randn(vocabulary, dim), torch.randn(rows, dim)
    bias = torch.randn(vocabulary) if with_bias else None
    clusters = made.random_clusters(9, dim, vocabulary, share, always=[2, 3], never=[1])
    expected = naive(inputs, weight, bias, clusters)
    found, normalisers = ClusteredLinear(weight, bias, clusters, backend=backend).scores(
        inputs, suppressed_id=3
    )
    torch.testing.assert_close(normalisers, expected.logsumexp(1), atol=1e-4, rtol=1e-5)
    expected[:, 3] = -math.inf
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-5)


def test_what_is_said_does_not_depend_on_the_neighbours(backend):
    weight, inputs = torch.randn(500, 32), torch.randn(40, 32)
    linear = ClusteredLinear(weight, None, made.random_clusters(7, 32, 500, 0.1), backend=backend)
    together = linear(inputs)
    alone = torch.cat([linear(each) for each in inputs.split(1)])
    assert torch.equal(together.isfinite(), alone.isfinite())
    torch.testing.assert_close(together, alone)


@pytest.mark.usefixtures("threads_again")
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("rows", [1, 3, 40])
def test_threads_share_the_work(threads, rows, backend):
    weight, inputs = torch.randn(301, 24), torch.randn(rows, 24)
    clusters = made.random_clusters(5, 24, 301, 0.1)
    torch.set_num_threads(threads)
    found = ClusteredLinear(weight, None, clusters, backend=backend)(inputs)
    torch.testing.assert_close(found, naive(inputs, weight, None, clusters), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dim", [24, 512])
def test_scores_that_are_wanted_often_are_the_same(dim, backend):
    """The second call packs the weights of all symbols, as many of them are wanted."""
    weight, inputs = torch.randn(600, dim), torch.randn(40, dim)
    clusters = made.random_clusters(7, dim, 600, 0.9)
    linear = ClusteredLinear(weight, None, clusters, backend=backend)
    expected = naive(inputs, weight, None, clusters)
    for _ in range(3):
        torch.testing.assert_close(linear(inputs), expected, atol=1e-4, rtol=1e-5)


def test_on_the_kernels_not_a_bit_depends_on_the_neighbours(backend):
    weight, inputs = torch.randn(500, 37), torch.randn(70, 37)
    linear = ClusteredLinear(
        weight, torch.randn(500), made.random_clusters(7, 37, 500, 0.1), backend=backend
    )
    together, alone = linear(inputs), torch.cat([linear(each) for each in inputs.split(1)])
    # PyTorch's products may round differently with other rows beside them.
    assert torch.equal(together, alone) or backend.unsupported() is not None
    torch.testing.assert_close(together, alone)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_as_a_decoders_projection(dtype, temperature, backend):
    decoder = build_model().decoder
    clusters = made.random_clusters(4, 16, VOCABULARY, 0.4, always=[2], never=[1])
    projection = ClusteredProjection(clusters, decoder, dtype, backend=backend)
    assert projection.native is None
    hidden = torch.randn(2, 3, 16)
    for _ in range(2):
        weight = decoder.output_projection.weight.detach()
        expected = naive(hidden.flatten(0, 1), weight, None, clusters) / temperature
        found = projection.scores(hidden.to(dtype), temperature, suppressed_id=1)
        assert found.values.shape == (2, 3, VOCABULARY) and found.values.dtype == torch.float32
        if dtype == torch.float32:
            torch.testing.assert_close(found.values.flatten(0, 1), expected)
            torch.testing.assert_close(found.normalisers.flatten(), expected.logsumexp(1))
        with torch.no_grad():
            decoder.output_projection.weight.mul_(2)
        projection.refresh()


@pytest.mark.parametrize("rows", [1, 9])
@pytest.mark.parametrize("temperature, suppressed", [(1.0, -1), (1.0, 3), (0.7, 3)])
@pytest.mark.parametrize("share", [0.02, 0.6])
def test_the_best_are_those_of_all_scores(rows, temperature, suppressed, share, backend):
    decoder = build_model().decoder
    clusters = made.random_clusters(4, 16, VOCABULARY, share, always=[2, 3], never=[1])
    projection = ClusteredProjection(clusters, decoder, backend=backend)
    hidden = torch.randn(rows, 16)
    scores = projection.scores(hidden, temperature, suppressed)
    best = scores.values.argmax(1)
    tokens, log_probabilities = projection.best_of(hidden, temperature, suppressed)
    assert torch.equal(tokens, best)
    torch.testing.assert_close(log_probabilities, scores.of(best))
    if temperature == 1.0:
        assert torch.equal(projection.best(hidden, suppressed), best)


def test_a_symbol_that_is_barred_at_the_first_steps(backend):
    """As one of all scores, with the same normaliser."""
    decoder = build_model().decoder
    clusters = made.random_clusters(4, 16, VOCABULARY, 0.6, always=[2], never=[1])
    projection = ClusteredProjection(clusters, decoder, backend=backend)
    hidden = torch.randn(4, 3, 16)
    expected = projection.scores(hidden, suppressed_id=2)
    symbol = int(expected.values[2, 1].argmax())
    steps = torch.tensor([0, 1, 2, 3]).unsqueeze(1) + torch.arange(3)
    expected.values[..., symbol][steps < 4] = -math.inf
    best = expected.values.argmax(-1)
    found, scored = projection.best_of(hidden, 1.0, 2, Barred(symbol, steps, 4))
    assert torch.equal(found, best)
    torch.testing.assert_close(scored, expected.of(best))


def test_behind_a_first_head_the_kernels_score_no_states_of_a_decoder(backend):
    """They would leave the head out."""
    decoder = blockwise_model(3, learned_first_head=True).decoder
    clusters = made.random_clusters(4, 16, 16, 0.4)
    plain, behind = (
        ClusteredProjection(clusters, decoder, first_head=head, backend=backend)
        for head in (None, decoder.first_head)
    )
    able = backend.unsupported() is None
    assert (plain.gather is not None, plain.shortlist is not None) == (able, able)
    assert behind.gather is behind.shortlist is None


def test_clusters_have_the_decoders_type_where_8_bits_are_asked_for(backend):
    decoder, hidden = build_model().decoder, torch.randn(5, 16)
    clusters = made.random_clusters(4, 16, VOCABULARY, 0.4)
    own, rounded = (
        ClusteredProjection(clusters, decoder, dtype, backend=backend).scores(hidden).values
        for dtype in (None, torch.int8)
    )
    assert torch.equal(own, rounded)


def test_the_symbol_of_number_0_may_be_ruled_out(backend):
    linear = ClusteredLinear(
        torch.randn(300, 16), None, made.clusters([[0, 5]], 16, 300), backend=backend
    )
    values, _ = linear.scores(torch.randn(2, 16), 0)
    assert values[:, 0].eq(-math.inf).all() and values[:, 5].isfinite().all()


def test_the_first_of_equal_scores_is_the_best(backend):
    weight = torch.zeros(300, 16)
    weight[[31, 40, 255]] = 0.5
    clusters = made.clusters([[7, 40, 100, 255]], 16, 300)
    linear = ClusteredLinear(weight, None, clusters, backend=backend)
    for skipped, first in ((-1, 40), (40, 255)):
        assert linear.scores(torch.ones(2, 16), skipped)[0].argmax(1).tolist() == [first] * 2
        if linear.native is None:
            assert linear.best(torch.ones(2, 16), 1.0, skipped)[0].tolist() == [first] * 2
