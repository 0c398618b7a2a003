"""The matrix of parallel Jacobi iterations against a naive reference."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import UncachedDecoder, build_engine
from specdec_plugin.lab.viz.graph import settling_iterations
from specdec_plugin.lab.viz.record import Recording, observe, record
from tests.support import tiny
from tests.support.architectures import build_model
from tests.support.observed import MODELS, PAD, decode, full_pass


def naive(models, sample, length, min_len, max_len):
    """Algorithm 1 of the paper with fairseq's own model, each iteration in full."""
    iterate = [PAD] * length
    matrix = []
    while True:
        lprobs, masked = full_pass(models, sample, iterate, min_len, max_len)
        best = masked.argmax(1).tolist()
        if best == iterate:
            return matrix
        matrix.append([(token, float(lprobs[place, token].exp())) for place, token in
                       enumerate(best)])  # fmt: skip
        iterate = best


@settings(max_examples=60)
@given(
    chosen=st.sampled_from([[0], [1], [2], [0, 2]]),
    source=st.integers(0, 9),
    seed=st.integers(0, 10_000),
    min_len=st.integers(0, 3),
    max_len=st.integers(3, 16),
)
def test_matrix(chosen, source, seed, min_len, max_len):
    models = [MODELS[each] for each in chosen]
    sample = tiny.sample([source], seed)
    found, _ = decode(models, sample, observe, min_len=min_len, max_len_b=max_len)
    recording, output = found["observed"], found["tokens"].tolist()
    expected = naive(models, sample, len(output), min_len, max_len)
    assert recording.tokens.tolist() == [[token for token, _ in row] for row in expected]
    chances = torch.tensor([[chance for _, chance in row] for row in expected])
    assert torch.allclose(recording.probabilities, chances, atol=1e-5)
    assert recording.right.tolist() == [
        [token == final for (token, _), (final, _) in zip(row, expected[-1], strict=True)]
        for row in expected
    ]
    # Proposition 1: greedy's output, after as many iterations as tokens at most.
    assert recording.tokens[-1].tolist() == output
    assert recording.right[-1].all() and len(recording.tokens) <= len(output)
    settled = settling_iterations(recording.right)
    assert all(when <= place for place, when in enumerate(settled, 1))


def test_something_is_decoded_in_parallel():
    """Else the tests above would be of nothing."""
    counts = []
    for seed in range(20):
        found, _ = decode(MODELS[:1], tiny.sample([5], seed), observe, max_len_b=16)
        counts.append(len(found["tokens"]) - len(found["observed"].tokens))
    assert max(counts) > 1


@pytest.mark.parametrize("architecture", ["lstm", "fconv"])
def test_decoders_without_a_cache(architecture):
    model = build_model(architecture)
    assert isinstance(build_engine(model), UncachedDecoder)
    found, _ = decode([model], tiny.sample([5], words=19), observe, max_len_b=12)
    recording: Recording = found["observed"]
    assert recording.tokens[-1].tolist() == found["tokens"].tolist()
    assert (recording.probabilities > 0).all() and (recording.probabilities <= 1).all()


def test_another_fixed_point_is_told(caplog):
    def observe_another(verifier: Verifier, batch, hypothesis):
        another = hypothesis["tokens"].roll(1)
        assert not torch.equal(another, hypothesis["tokens"])
        return record(verifier, batch, another)

    found, _ = decode(MODELS[:1], tiny.sample([5], 2), observe_another, max_len_b=12)
    assert "another output than greedy" in caplog.text
    assert found["observed"].tokens[-1].tolist() == found["tokens"].tolist()
