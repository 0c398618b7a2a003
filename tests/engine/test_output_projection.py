import pytest
import torch

from specdec_plugin.engine.barred import Barred
from specdec_plugin.engine.output_projection import OutputProjection
from tests.support.architectures import VOCABULARY, build_model


@pytest.mark.parametrize("shared", [True, False])
def test_is_fairseqs_own(shared, backend):
    decoder = build_model(share_decoder_input_output_embed=shared).decoder
    hidden = torch.randn(2, 3, 16)
    logits = OutputProjection(decoder, backend=backend).scores(hidden).values
    torch.testing.assert_close(logits, decoder.output_layer(hidden).detach())


def test_bias(backend):
    decoder = build_model().decoder
    decoder.output_projection.bias = torch.nn.Parameter(torch.randn(VOCABULARY))
    hidden = torch.randn(4, 16)
    logits = OutputProjection(decoder, backend=backend).scores(hidden).values
    torch.testing.assert_close(logits, decoder.output_projection(hidden).detach())


def test_vocabulary_is_the_projections_even_if_the_dictionary_grew(backend):
    decoder = build_model().decoder
    projection = OutputProjection(decoder, backend=backend)
    decoder.dictionary.add_symbol("new")
    assert projection.scores(torch.randn(1, 16)).values.shape == (1, VOCABULARY)


def test_runs_in_another_dtype(backend):
    decoder = build_model().decoder
    projection = OutputProjection(decoder, torch.bfloat16, backend=backend)
    hidden = torch.randn(2, 16)
    logits = projection.scores(hidden.bfloat16()).values
    assert logits.dtype == torch.float32
    expected = decoder.output_layer(hidden).detach()
    torch.testing.assert_close(logits.float(), expected, atol=0.1, rtol=0.05)


def test_notices_changed_weights(backend):
    decoder = build_model().decoder
    projection = OutputProjection(decoder, backend=backend)
    hidden = torch.randn(2, 16)
    with torch.no_grad():
        decoder.output_projection.weight.mul_(2)
    projection.refresh()
    torch.testing.assert_close(
        projection.scores(hidden).values, decoder.output_layer(hidden).detach()
    )


@pytest.mark.parametrize("suppressed", [-1, 5])
def test_a_symbol_that_is_barred_at_the_first_steps(suppressed, backend):
    """The best of the others, with the same normaliser."""
    decoder = build_model().decoder
    projection = OutputProjection(decoder, backend=backend)
    hidden = torch.randn(4, 3, 16)
    expected = decoder.output_layer(hidden).detach().log_softmax(-1)
    if suppressed >= 0:
        expected[..., suppressed] = -torch.inf
    symbol = int(expected[2, 1].argmax())
    steps = torch.tensor([0, 1, 2, 3]).unsqueeze(1) + torch.arange(3)
    expected[..., symbol][steps < 4] = -torch.inf
    best, tokens = expected.max(-1)
    found, scored = projection.best_of(hidden, 1.0, suppressed, Barred(symbol, steps, 4))
    assert torch.equal(found, tokens) and not found[steps < 4].eq(symbol).any()
    torch.testing.assert_close(scored, best)
