"""Noise: the same in both forms, distributed as Gumbel's, and different in each position."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding import noise
from specdec_plugin.engine.native import interface
from tests import support
from tests.support.own_kernels import loaded


def keys_of(seed, sentences, sample=0):
    numbers = torch.tensor(sentences)
    return noise.row_keys(seed, numbers, torch.full_like(numbers, sample))


@pytest.fixture(scope="module")
def fill(tmp_path_factory):
    """What the kernels compute for ``noise.gumbel`` at one position: (rows, symbols)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interface, "_headers", {})  # that of the tests alone is compiled
        interface.Header(support.__file__, "noise_fill.h")
        library = loaded(tmp_path_factory.mktemp("noise"))

    def call(keys, position, symbols):
        out = torch.empty(len(keys), symbols)
        library.noise_fill(keys.data_ptr(), len(keys), position, symbols, out.data_ptr())
        return out

    return call


@settings(max_examples=60)
@given(
    seed=st.integers(-(2**70), 2**70),
    sentences=st.lists(st.integers(0, 2**40), min_size=1, max_size=4),
    sample=st.integers(0, 10**6),
    position=st.integers(0, 5000),
    symbols=st.integers(1, 400),
)
def test_both_forms_agree(fill, seed, sentences, sample, position, symbols):
    keys = keys_of(seed, sentences, sample)
    positions = torch.full((len(sentences), 1), position)
    reference = noise.gumbel(keys, positions, symbols).squeeze(1)
    torch.testing.assert_close(fill(keys, position, symbols), reference, atol=2e-6, rtol=0)


def test_the_numbers_stay_those_of_earlier_releases():
    keys = keys_of(1, [0, 7], sample=3)
    assert keys.tolist() == EXPECTED_KEYS
    found = noise.gumbel(keys, torch.tensor([[5], [0]]), 3).squeeze(1)
    torch.testing.assert_close(found, torch.tensor(EXPECTED), atol=1e-5, rtol=0)


EXPECTED_KEYS = [8704237352240437155, -6323124925010050621]
EXPECTED = [[-0.9226356, 1.1768997, 0.0888477], [0.8466412, 1.2887253, 2.0132294]]


@pytest.mark.parametrize(
    "numbers", [range(40), range(0, 40000, 1000), [2**bit for bit in range(40)]]
)
def test_the_distribution_is_gumbels(numbers):
    """Kolmogorov and Smirnov's distance, over keys that differ in few bits."""
    values = noise.gumbel(keys_of(3, list(numbers)), torch.arange(20).expand(40, -1), 1000)
    ordered = torch.exp(-torch.exp(-values.double().flatten())).sort().values
    count = len(ordered)
    distance = (ordered - torch.arange(count) / count).abs().max()
    assert float(distance) < 2.0 / math.sqrt(count)  # exceeded with a probability of 0.0007


def test_extremes_are_finite():
    bits = torch.tensor([0, 1, 2**31, 2**32 - 1])
    found = noise.gumbel_of(bits)
    assert bool(found.isfinite().all())
    assert float(found[0]) == pytest.approx(33 * math.log(2), abs=1e-4)
    assert found.tolist() == sorted(found.tolist(), reverse=True)


def test_every_number_counts():
    base = noise.gumbel(keys_of(1, [4], 2), torch.tensor([[6]]), 50)
    others = [
        noise.gumbel(keys_of(2, [4], 2), torch.tensor([[6]]), 50),
        noise.gumbel(keys_of(1, [5], 2), torch.tensor([[6]]), 50),
        noise.gumbel(keys_of(1, [4], 3), torch.tensor([[6]]), 50),
        noise.gumbel(keys_of(1, [4], 2), torch.tensor([[7]]), 50),
    ]
    for other in others:
        assert float((base - other).abs().min()) > 0
    together = noise.gumbel(keys_of(1, [9, 4], 2), torch.tensor([[0, 6], [5, 6]]), 80)
    assert torch.equal(together[1, 1, :50], base[0, 0])
