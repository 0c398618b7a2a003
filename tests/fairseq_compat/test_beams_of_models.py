"""Models that ``BARTModel.set_beam_size`` has told beams."""

import pytest
import torch

from specdec_plugin.engine import TorchBackend, UncachedDecoder
from specdec_plugin.fairseq_compat.beams_of_models import reordered, told_beams
from tests.support import methods as ways
from tests.support import tiny

SAMPLES = {"sampling": True, "beam": 4, "seed": 5, "max_len_b": 14}


@pytest.fixture
def model():
    found = tiny.model(1)
    found.encoder.reorder_encoder_out = found.encoder._reorder_encoder_out
    return found


def test_samples_are_those_of_a_fresh_model(backend, model):
    sample = tiny.sample([5, 5], 8)  # of one length, so that nothing is padded
    found, expected = (
        [
            [each["tokens"].tolist() for each in row]
            for row in ways.generator("greedy", one, backend, SAMPLES).generate([one], sample)
        ]
        for one in (model, tiny.model(1))
    )
    assert found == expected
    assert len({tuple(tokens) for row in found for tokens in row}) > 4


def test_rows_leave(model):
    encoder_out = model.encoder.forward_torchscript(tiny.sample([3, 3], 2)["net_input"])
    state = UncachedDecoder(model).start(encoder_out, 4)
    state.select(torch.tensor([1]))
    expected = encoder_out["encoder_out"][0][:, 1:]
    assert torch.equal(state.encoder_out["encoder_out"][0], expected)
    again = reordered(model.encoder, encoder_out, torch.tensor([1, 1]))
    assert torch.equal(again["encoder_out"][0], expected.expand(-1, 2, -1))


def test_a_decoder_that_looks_at_a_sentence_once_for_four_beams(model):
    """It does so for four rows of fairseq's search, and for no rows of ours."""
    sample = tiny.sample([3, 3, 3, 3], 2)
    encoder_out = model.encoder.forward_torchscript(sample["net_input"])
    tokens = torch.randint(4, 9, (4, 5))
    expected = UncachedDecoder(tiny.model(1))
    expected = expected.logits(expected.start(encoder_out, 8), tokens)
    attentions = told_beams(model.decoder)
    for each in attentions:
        each.set_beam_size(4)
    ours = UncachedDecoder(model)
    found = ours.logits(ours.start(encoder_out, 8), tokens)
    torch.testing.assert_close(found, expected)
    assert len(attentions) > 1 and {each.beam_size for each in attentions} == {4}


def test_alignments_are_those_of_a_fresh_model(model):
    sample, options = tiny.sample([4, 4, 4, 4], 2), {"max_len_b": 9, "print_alignment": "hard"}
    fresh, found = tiny.model(1), []
    for each in told_beams(model):
        each.set_beam_size(4)
    for one in (fresh, model):
        made = ways.generator("greedy", one, TorchBackend(), options)
        found.append([row[0]["alignment"] for row in made.generate([one], sample)])
    assert found[0] == found[1] != [[]] * 4
