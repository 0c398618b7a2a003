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
    ("transformer", {"decoder_layers": 0}),
]
#: Decoders that compute their positions, or have none.
ENDLESS = [
    ("lstm", {}),
    ("lightconv", {"decoder_conv_type": "lightweight"}),
    ("transformer", {"adaptive_softmax_cutoff": "8,16"}),
    ("transformer", {"scale_heads": True, "no_token_positional_embeddings": True}),
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


@pytest.mark.parametrize("arch, options", ENDLESS)
def test_positions_beyond_those_that_the_model_names(arch, options):
    """fairseq's search goes there with --match-source-len."""
    model = build_model(arch, **options, max_target_positions=4)
    engine = UncachedDecoder(model)
    assert model.decoder.max_positions() == 4
    encoder_out, tokens = encode(model), random_tokens(3, 9)
    found = feed_in_steps(engine, engine.start(encoder_out, 4), tokens, [3, 4, 2])
    torch.testing.assert_close(found, log_probs(model, tokens, encoder_out), atol=1e-5, rtol=1e-5)


def test_drafts_behind_a_table_of_positions():
    """Those of a short row reach as far behind a long row; they are no tokens of the output."""
    options = {"decoder_conv_type": "lightweight", "decoder_learned_pos": True}
    model = build_model("lightconv", **options, max_target_positions=4)
    engine = UncachedDecoder(model)
    encoder_out, tokens = encode(model), random_tokens(3, 6)
    state = engine.start(encoder_out, 4)
    engine.logits(state, tokens[:, :3])
    state.keep(torch.tensor([3, 1, 2]), 3)
    found = engine.logits(state, tokens[:, 3:])
    for row, kept in enumerate([3, 1, 2]):
        fed = torch.cat([tokens[:, :kept], tokens[:, 3:]], 1)[:, :4]
        expected = log_probs(model, fed, encoder_out)[row, kept:]
        torch.testing.assert_close(found[row, : 4 - kept], expected, atol=1e-5, rtol=1e-5)


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
