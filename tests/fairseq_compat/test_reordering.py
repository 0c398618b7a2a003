"""An encoder that ``BARTModel.set_beam_size`` has kept from reordering its output."""

import pytest
import torch

from specdec_plugin.engine import UncachedDecoder
from specdec_plugin.fairseq_compat.reordering import reordered
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
