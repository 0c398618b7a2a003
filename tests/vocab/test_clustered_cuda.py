"""Triton's kernels of the clustered projection against PyTorch's operators.

Without a GPU they are interpreted, if TRITON_INTERPRET=1 was set before PyTorch was imported.
"""

import logging
import math

import pytest
import torch

from specdec_plugin.engine import GraphBackend, TorchBackend
from specdec_plugin.vocab import clustered_cuda
from specdec_plugin.vocab.clustered_cuda import CudaClusters
from specdec_plugin.vocab.clustered_linear import ClusteredLinear
from specdec_plugin.vocab.clustered_projection import ClusteredProjection
from tests.support import made
from tests.support.architectures import VOCABULARY, build_model
from tests.support.kernels import device_of_kernels

pytestmark = pytest.mark.usefixtures("seeded")


@pytest.fixture(scope="module")
def device():
    """Where the kernels run."""
    return device_of_kernels()


def both(device, dtype, with_bias, clusters, dim):
    """The kernels, and PyTorch's operators in float32 with weights of the same values."""
    weight = torch.randn(clusters.vocabulary, dim, device=device).to(dtype)
    bias = torch.randn(clusters.vocabulary, device=device).to(dtype) if with_bias else None
    exact = None if bias is None else bias.float()
    plain = ClusteredLinear(weight.float(), exact, clusters, TorchBackend())
    return CudaClusters(weight, bias, clusters), plain


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("rows, with_bias", [(1, True), (3, False), (18, True)])
@pytest.mark.parametrize(
    "vocabulary, dim, share", [(300, 16, 0.02), (299, 21, 0.6), (90, 200, 0.4)]
)
def test_scores_are_those_of_pytorch(vocabulary, dim, share, rows, with_bias, dtype, device):
    clusters = made.random_clusters(9, dim, vocabulary, share, always=[2, 3], never=[1])
    kernels, plain = both(device, dtype, with_bias, clusters, dim)
    inputs = torch.randn(rows, dim, device=device).to(dtype)
    found, expected = kernels.scores(inputs, 3), plain.scores(inputs.float(), 3)
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("temperature, suppressed", [(1.0, -1), (1.0, 3), (0.7, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_best_tokens_are_those_of_pytorch(dtype, temperature, suppressed, device):
    clusters = made.random_clusters(17, 24, 300, 0.3, always=[2, 3], never=[1])
    kernels, plain = both(device, dtype, True, clusters, 24)
    inputs = torch.randn(6, 24, device=device).to(dtype)
    found = kernels.best(inputs, temperature, suppressed)
    expected = plain.best(inputs.float(), temperature, suppressed)
    assert torch.equal(found[0], expected[0]) and found[0].dtype == torch.long
    torch.testing.assert_close(found[1], expected[1], atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("parts", [1, 3, 64])
def test_the_first_of_equal_scores_counts(parts, device, monkeypatch):
    """Wherever parts of the tokens begin, and in whichever lane a token is."""
    monkeypatch.setattr(CudaClusters, "_parts", lambda self, rows: parts)
    clusters = made.clusters([[5, *range(20, 290, 2)]], 256, 300)
    weight = torch.zeros(300, 256, device=device)
    inputs = torch.ones(1, 256, device=device)
    for equal in ([288, 131, 130, 40], [288, 40, 5], [130, 132]):
        weight.zero_()
        weight[equal] = 0.5
        kernels = CudaClusters(weight, None, clusters)
        found = [int(kernels.best(inputs, 1.0, skipped)[0]) for skipped in (-1, min(equal))]
        active = sorted({*equal} - {131})
        assert found == active[:2]


def test_nothing_is_left_where_all_is_ruled_out(device):
    clusters = made.clusters([[7], [7]], 16, 20)
    weight, inputs = torch.randn(20, 16, device=device), torch.randn(2, 16, device=device)
    kernels = CudaClusters(weight, None, clusters)
    values, normalisers = kernels.scores(inputs, 7)
    assert values.eq(-math.inf).all()
    torch.testing.assert_close(normalisers, inputs @ weight[7], atol=1e-5, rtol=1e-5)
    tokens, log_probabilities = kernels.best(inputs, 1.0, 7)
    assert torch.equal(tokens, values.argmax(1)) and log_probabilities.eq(-math.inf).all()


def test_numbers_that_are_none_harm_nobody(device):
    clusters = made.random_clusters(9, 16, 60, 0.3)
    kernels, plain = both(device, torch.float32, False, clusters, 16)
    inputs = torch.randn(3, 16, device=device)
    inputs[1] = math.nan
    found, expected = kernels.best(inputs, 1.0, -1), plain.best(inputs, 1.0, -1)
    assert 0 <= int(found[0][1]) < 60 and found[1][1].isnan()
    assert torch.equal(found[0][::2], expected[0][::2])


def test_as_a_decoders_projection(device, monkeypatch):
    monkeypatch.setattr(clustered_cuda, "supports", lambda weight: True)
    decoder = build_model().decoder.to(device)
    clusters = made.random_clusters(4, 16, VOCABULARY, 0.4, always=[2], never=[1])
    projection = ClusteredProjection(clusters, decoder, backend=GraphBackend())
    plain = ClusteredProjection(clusters, decoder, backend=TorchBackend())
    hidden = torch.randn(2, 3, 16, device=device)
    for _ in range(2):
        for temperature in (1.0, 0.7):
            found = projection.best_of(hidden, temperature, 2)
            scores = plain.scores(hidden, temperature, 2)
            best = scores.values.argmax(-1)
            assert torch.equal(found[0], best)
            torch.testing.assert_close(found[1], scores.of(best), atol=1e-4, rtol=1e-5)
            own = projection.scores(hidden, temperature, 2)
            torch.testing.assert_close(own, scores, atol=1e-4, rtol=1e-5)
        flat = hidden.flatten(0, 1)
        assert torch.equal(projection.best(flat, 2), plain.best(flat, 2))
        with torch.no_grad():
            decoder.output_projection.weight.mul_(2)
        projection.refresh(), plain.refresh()


def test_where_they_fail_pytorch_computes(monkeypatch, caplog):
    def failing(*arguments):
        raise RuntimeError("there is no compiler")

    monkeypatch.setattr(clustered_cuda, "supports", lambda weight: True)
    monkeypatch.setattr(clustered_cuda, "CudaClusters", failing)
    clusters = made.random_clusters(4, 16, 30, 0.4)
    weight, inputs = torch.randn(30, 16), torch.randn(2, 16)
    with caplog.at_level(logging.WARNING, clustered_cuda.__name__):
        linear = ClusteredLinear(weight, None, clusters, GraphBackend())
    assert "there is no compiler" in caplog.text
    expected = ClusteredLinear(weight, None, clusters, TorchBackend())
    assert torch.equal(linear(inputs), expected(inputs))


def test_on_a_cpu_nobody_looks_for_triton():
    weight = torch.randn(30, 16)
    assert clustered_cuda.kernels_of(weight, None, made.random_clusters(4, 16, 30, 0.4)) is None
