"""The uncached engine against fairseq's own forward pass."""

import logging

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, UncachedDecoder, build_engine
from tests.support.architectures import build_model, encode, feed_in_steps, random_tokens

KINDS = [
    ("lstm", {}),
    ("lstm", {"decoder_attention": "False", "encoder_bidirectional": False}),
    ("lstm", {"adaptive_softmax_cutoff": "8,16", "criterion": "adaptive_loss"}),
    ("fconv", {}),
    ("lightconv", {"decoder_conv_type": "lightweight"}),
    ("lightconv", {"decoder_conv_type": "dynamic"}),
    ("transformer", {"adaptive_softmax_cutoff": "8,16"}),
    ("transformer", {"cross_self_attention": True}),
    ("transformer", {"scale_fc": True, "scale_heads": True}),
]


def log_probs(model, tokens, encoder_out):
    with torch.no_grad():
        output = model.decoder(tokens, encoder_out=encoder_out)
        return model.get_normalized_probs(output, log_probs=True)


@pytest.mark.parametrize("arch, options", KINDS)
def test_equals_fairseq(arch, options, backend):
    model = build_model(arch, **options)
    engine = build_engine(model, backend=backend)
    assert isinstance(engine, UncachedDecoder)
    encoder_out, tokens = encode(model), random_tokens(3, 9)
    found = feed_in_steps(engine, engine.start(encoder_out, 4), tokens, [1, 3, 1, 4])
    torch.testing.assert_close(found, log_probs(model, tokens, encoder_out), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kernels", [[3, 7], [31, 40]])
@pytest.mark.parametrize("kind", ["dynamic", "lightweight"])
@pytest.mark.parametrize("learned", [False, True])
@pytest.mark.parametrize("positions", [9, 40])
def test_convolutions_equal_fairseqs_search(kind, kernels, learned, positions):
    """Which feeds one token after another."""
    model = build_model(
        "lightconv",
        decoder_conv_type=kind,
        decoder_kernel_size_list=kernels,
        decoder_learned_pos=learned,
        max_target_positions=positions,
    )
    encoder_out, tokens, state = encode(model), random_tokens(3, 9), {}
    with torch.no_grad():
        each = [
            model.decoder(tokens[:, :end], encoder_out=encoder_out, incremental_state=state)[0]
            for end in range(1, 10)
        ]
    expected = torch.cat(each, 1).log_softmax(-1)
    engine = UncachedDecoder(model)
    found = feed_in_steps(engine, engine.start(encoder_out, 4), tokens, [1, 3, 1, 4])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("arch", ["lstm", "fconv"])
def test_rows_chosen_before_the_first_call(arch):
    model = build_model(arch)
    encoder_out, tokens = encode(model), random_tokens(3, 4)
    expected = log_probs(model, tokens, encoder_out)
    engine = UncachedDecoder(model)
    state = engine.start(encoder_out, 4)
    order = torch.tensor([2, 0])
    state.select(order)
    torch.testing.assert_close(engine.logits(state, tokens[order]), expected[order])


def test_select_leaves_the_callers_encoder_output_alone():
    model = build_model("fconv")
    encoder_out = encode(model)
    state = UncachedDecoder(model).start(encoder_out, 4)
    state.select(torch.tensor([0]))
    assert encoder_out["encoder_padding_mask"].size(0) == 3


def test_ragged_rows_are_filled_with_pad():
    model = build_model("lstm")
    engine = UncachedDecoder(model)
    state = engine.start(encode(model), 4)
    engine.logits(state, torch.full((3, 4), 5))
    state.keep(torch.tensor([4, 1, 2]), 4)
    fed = state.feed(torch.full((3, 2), 7), 1)
    assert fed.tolist() == [[5, 5, 5, 5, 7, 7], [5, 7, 7, 1, 1, 1], [5, 5, 7, 7, 1, 1]]


def test_float32_from_a_model_in_half_precision():
    model = build_model("lstm").bfloat16()
    engine = UncachedDecoder(model)
    assert engine.logits(engine.start(encode(model), 4), random_tokens(3, 2)).dtype == torch.float32


class TestBuildEngine:
    def test_cached_where_it_can(self, backend):
        engine = build_engine(build_model(), torch.bfloat16, backend=backend)
        assert isinstance(engine, CachedDecoder)
        assert engine.weight_type == torch.bfloat16

    def test_says_why_not(self, caplog, backend):
        with caplog.at_level(logging.INFO, logger="specdec_plugin.engine"):
            build_engine(build_model("lstm"), torch.bfloat16, backend=backend)
        assert "LSTMDecoder is not a Transformer decoder; torch.bfloat16 is ignored" in caplog.text
