"""The engine against fairseq's own forward pass, over every kind of Transformer it holds."""

import pytest
import torch
from fairseq.models.transformer import TransformerDecoder
from fairseq.optim.adam import Adam

from specdec_plugin.engine import CachedDecoder, linear
from specdec_plugin.engine.graphs.tensors import GRAIN
from specdec_plugin.errors import PluginError
from tests.support.architectures import (
    VOCABULARY,
    build_model,
    encode,
    feed_in_steps,
    full_logits,
    logits_of,
    random_tokens,
)

KINDS = {
    "post-norm": {},
    "pre-norm": {"decoder_normalize_before": True, "encoder_normalize_before": True},
    "pre-norm without a last norm": {
        "decoder_normalize_before": True,
        "no_decoder_final_norm": True,
    },
    "learned positions": {"decoder_learned_pos": True},
    "no positions": {"no_token_positional_embeddings": True},
    "norm after embedding": {"layernorm_embedding": True},
    "no embedding scale": {"no_scale_embedding": True},
    "neither scale nor positions": {
        "no_scale_embedding": True,
        "no_token_positional_embeddings": True,
    },
    "gelu": {"activation_fn": "gelu"},
    "shared projection": {"share_decoder_input_output_embed": True},
    "all embeddings shared": {"share_all_embeddings": True},
    "four layers on one": {"encoder_layers": 4, "decoder_layers": 1},
    "one layer on three": {"encoder_layers": 1, "decoder_layers": 3},
    "a wider encoder": {"encoder_embed_dim": 20, "encoder_attention_heads": 4},
    "other input and output sizes": {"decoder_input_dim": 12, "decoder_output_dim": 10},
    "BART's choice": {
        "decoder_learned_pos": True,
        "layernorm_embedding": True,
        "no_scale_embedding": True,
        "activation_fn": "gelu",
        "share_all_embeddings": True,
    },
    "LayerDrop": {"decoder_layerdrop": 0.5},
    "activation checkpoints": {"checkpoint_activations": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_equals_fairseq(kind, backend):
    model = build_model(**KINDS[kind])
    engine = CachedDecoder(model.decoder, backend=backend)
    encoder_out, tokens = encode(model), random_tokens(3, 11)
    state = engine.start(encoder_out, 8)
    logits = feed_in_steps(engine, state, tokens, [1, 4, 1, 5])
    torch.testing.assert_close(
        logits, full_logits(model, tokens, encoder_out), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("packed_from", [0, linear.SMALL])
@pytest.mark.parametrize("widths", [[11], [1] * 11, [3, 8]])
def test_one_row_equals_fairseq(widths, packed_from, monkeypatch, backend):
    monkeypatch.setattr(linear, "SMALL", packed_from)
    model = build_model()
    engine = CachedDecoder(model.decoder, backend=backend)
    encoder_out, tokens = encode(model, [5]), random_tokens(1, 11)
    logits = feed_in_steps(engine, engine.start(encoder_out, 4), tokens, widths)
    torch.testing.assert_close(
        logits, full_logits(model, tokens, encoder_out), atol=1e-5, rtol=1e-5
    )


def test_source_mask_is_none_when_nothing_is_padded(backend):
    model = build_model()
    engine = CachedDecoder(model.decoder, backend=backend)
    if backend.static:  # The source is always padded there, to a size that others have, too.
        mask = engine.start(encode(model, [6, 4]), 8).source_mask[:, 0, 0]
        assert mask.shape == (2, GRAIN // 2)
        assert mask[:, :6].tolist() == [[0] * 6, [-float("inf")] * 2 + [0] * 4]
        assert mask[:, 6:].eq(-float("inf")).all()
        return
    assert engine.start(encode(model, [6, 6]), 8).source_mask is None
    padded = engine.start(encode(model, [6, 4]), 8)
    hidden, seen = [-float("inf")] * 2, [0.0] * 4
    kernels = engine.on_torch is None  # the source's symbols come first then
    assert padded.source_mask[1, 0, 0].tolist() == (seen + hidden if kernels else hidden + seen)
    assert (padded.source_lengths.tolist() == [6, 4]) if kernels else padded.source_lengths is None
    encoder_out = encode(model, [6, 6])
    encoder_out["encoder_padding_mask"] = []
    assert engine.start(encoder_out, 8).source_mask is None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_leaves_the_model_alone(dtype, backend):
    model = build_model(decoder_learned_pos=True, decoder_output_dim=10)
    engine = CachedDecoder(model.decoder, dtype, backend=backend)
    encoder_out, tokens = encode(model), random_tokens(3, 9)
    state = engine.start(encoder_out, 8)
    hidden = engine.forward(state, engine.embedding.of_tokens(tokens, state.lengths))
    # The kernels keep weights in bfloat16 and compute in float32; float16 they leave to PyTorch.
    native = backend.unsupported() is None and dtype == torch.bfloat16
    assert hidden.dtype == (torch.float32 if native else dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    logits = logits_of(engine, state, tokens)
    assert logits.dtype == torch.float32
    expected = full_logits(model, tokens, encoder_out)
    error = (logits - expected).abs().max()
    assert 1e-5 < error < 0.05 * expected.abs().max()  # rounded somewhere, wrong nowhere


def test_follows_a_model_in_half_precision(backend):
    model = build_model().bfloat16()
    engine = CachedDecoder(model.decoder, backend=backend)
    encoder_out, tokens = encode(model), random_tokens(3, 9)
    state = engine.start(encoder_out, 16)
    computed = torch.float32 if backend.unsupported() is None else torch.bfloat16
    assert (
        engine.forward(state, engine.embedding.of_tokens(tokens, state.lengths)).dtype == computed
    )
    expected = full_logits(model, tokens, encoder_out).float()
    torch.testing.assert_close(logits_of(engine, state, tokens), expected, atol=0.1, rtol=0.05)


def test_positions_follow_row_length_not_pad(backend):
    model = build_model()
    engine = CachedDecoder(model.decoder, backend=backend)
    tokens = torch.tensor([[2, 1, 7], [1, 1, 7]])
    starts = torch.tensor([0, 3])
    table = engine.embedding.of_vectors(torch.zeros(2, 3, 16), starts)
    expected = model.decoder.embed_positions.weights[torch.tensor([[2, 3, 4], [5, 6, 7]])]
    torch.testing.assert_close(table, expected)
    torch.testing.assert_close(
        engine.embedding.of_tokens(tokens, starts) - expected,
        4 * model.decoder.embed_tokens(tokens),
    )


def test_vectors_are_placed_and_normalised_but_not_scaled(backend):
    model = build_model(layernorm_embedding=True, decoder_learned_pos=True)
    engine = CachedDecoder(model.decoder, backend=backend)
    vectors = torch.randn(1, 2, 16)
    before = vectors.clone()
    placed = engine.embedding.of_vectors(vectors, torch.tensor([5]))
    positions = model.decoder.embed_positions.weight[7:9]
    expected = model.decoder.layernorm_embedding(vectors + positions)
    torch.testing.assert_close(placed, expected.detach())
    assert torch.equal(vectors, before)


def test_sinusoidal_positions_grow(backend):
    model = build_model(max_target_positions=3)
    model.decoder.embed_positions.weights = model.decoder.embed_positions.weights[:6]
    engine = CachedDecoder(model.decoder, backend=backend)
    encoder_out, tokens = encode(model), random_tokens(3, 30)
    logits = feed_in_steps(engine, engine.start(encoder_out, 4), tokens, [2, 13, 15])
    torch.testing.assert_close(
        logits, full_logits(model, tokens, encoder_out), atol=1e-5, rtol=1e-5
    )


class TestLearnedPositionsEnd:
    @pytest.fixture
    def engine(self, backend):
        return CachedDecoder(
            build_model(decoder_learned_pos=True, max_target_positions=8).decoder, backend=backend
        )

    @pytest.mark.parametrize("starts, new", [([8], 1), ([3, 8], 1), ([0], 9), ([0, 0], 9)])
    def test_refused_past_the_table(self, engine, starts, new):
        with pytest.raises(PluginError, match="learned 8 target positions"):
            engine.embedding.of_tokens(torch.full((len(starts), new), 5), torch.tensor(starts))

    @pytest.mark.parametrize("starts", [[6], [6, 1]])
    def test_drafts_may_reach_over_it(self, engine, starts):
        placed = engine.embedding.of_tokens(torch.full((len(starts), 4), 5), torch.tensor(starts))
        last = engine.embedding.of_tokens(torch.full((1, 1), 5), torch.tensor([7]))[0, 0]
        assert torch.equal(placed[0, 1:], last.expand(3, -1))
        exact = engine.embedding.of_tokens(torch.full((1, 4), 5), torch.tensor([1]))
        assert len(starts) == 1 or torch.equal(placed[1], exact[0])


def naive_forward(model, embedded, encoder_out, visible):
    """fairseq's layers with an attention mask of our own: (rows, length, length) bool."""
    rows = []
    for row in range(embedded.size(0)):
        hidden = embedded[row].unsqueeze(1)
        mask = torch.zeros(visible[row].shape).masked_fill_(~visible[row], -float("inf"))
        for layer in model.decoder.layers:
            hidden = layer(
                hidden,
                encoder_out["encoder_out"][0][:, row : row + 1],
                encoder_out["encoder_padding_mask"][0][row : row + 1],
                self_attn_mask=mask,
            )[0]
        rows.append(hidden.squeeze(1))
    return torch.stack(rows).detach()


@pytest.mark.parametrize("lengths", [[5, 2, 3], [4, 4, 4], [5]])
def test_limits_make_a_block_that_sees_itself(lengths, backend):
    model = build_model()
    engine = CachedDecoder(model.decoder, backend=backend)
    rows, block = len(lengths), 4
    encoder_out = encode(model, [7, 5, 4][:rows])
    embedded = torch.randn(rows, 12, 16)
    state = engine.start(encoder_out, 4)
    engine.forward(state, embedded[:, :6])
    accepted = torch.tensor(lengths)
    state.keep(accepted, max(lengths))
    places = accepted.unsqueeze(1) + torch.arange(block)
    new = embedded[torch.arange(rows).unsqueeze(1), places]
    hidden = engine.forward(state, new, (accepted + block).unsqueeze(1).expand(-1, block))

    columns = torch.arange(12)
    visible = (columns <= columns.unsqueeze(1)).repeat(rows, 1, 1)
    for row, length in enumerate(lengths):
        visible[row, length : length + block, : length + block] = True
    expected = naive_forward(model, embedded, encoder_out, visible)
    expected = expected[torch.arange(rows).unsqueeze(1), places]
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)


def test_limits_of_each_query_are_its_own(backend):
    model = build_model()
    engine = CachedDecoder(model.decoder, backend=backend)
    encoder_out, embedded = encode(model), torch.randn(3, 4, 16)
    limits = torch.tensor([[1, 4, 2, 3], [4, 4, 4, 4], [3, 1, 1, 2]])
    hidden = engine.forward(engine.start(encoder_out, 4), embedded, limits)
    visible = torch.arange(4) < limits.unsqueeze(-1)
    expected = naive_forward(model, embedded, encoder_out, visible)
    torch.testing.assert_close(hidden, expected, atol=1e-5, rtol=1e-5)


def test_input_vectors_are_not_changed(backend):
    for pre_norm in (False, True):
        model = build_model(decoder_normalize_before=pre_norm)
        engine = CachedDecoder(model.decoder, backend=backend)
        embedded = torch.randn(3, 4, 16)
        before = embedded.clone()
        engine.forward(engine.start(encode(model), 4), embedded)
        assert torch.equal(embedded, before)


class TestStaleWeights:
    @pytest.fixture
    def model(self):
        return build_model(decoder_learned_pos=True, layernorm_embedding=True)

    def assert_fresh(self, engine, model, tolerance=1e-5):
        encoder_out, tokens = encode(model), random_tokens(3, 5)
        engine.refresh()
        logits = logits_of(engine, engine.start(encoder_out, 8), tokens)
        expected = full_logits(model, tokens, encoder_out).float()
        torch.testing.assert_close(logits, expected, atol=tolerance, rtol=tolerance)

    def test_every_parameter_changed_in_place(self, model, backend):
        engine = CachedDecoder(model.decoder, backend=backend)
        for _, parameter in model.decoder.named_parameters():
            with torch.no_grad():
                parameter.add_(torch.randn_like(parameter), alpha=0.3)
            self.assert_fresh(engine, model)

    def test_load_state_dict(self, model, backend):
        engine = CachedDecoder(model.decoder, backend=backend)
        other = build_model(decoder_learned_pos=True, layernorm_embedding=True)
        model.load_state_dict(other.state_dict())
        self.assert_fresh(engine, model)

    def test_parameter_replaced(self, model, backend):
        engine = CachedDecoder(model.decoder, backend=backend)
        model.decoder.layers[1].fc1.weight = torch.nn.Parameter(torch.randn(24, 16))
        self.assert_fresh(engine, model)

    def test_training_step_that_counts_no_version(self, model, backend):
        engine = CachedDecoder(model.decoder, backend=backend)
        optimizer = Adam(model.parameters(), lr=0.3)
        self.assert_fresh(engine, model)
        model.train()
        model.decoder(random_tokens(3, 5), encoder_out=encode(model))[0].sum().backward()
        model.eval()
        self.assert_fresh(engine, model)  # as where a batch is validated before the step
        optimizer.step()
        self.assert_fresh(engine, model)

    def test_built_in_training_mode(self, model, backend):
        model.train()
        engine = CachedDecoder(model.decoder, backend=backend)
        model.eval()
        self.assert_fresh(engine, model)

    def test_other_dtype(self, model, backend):
        engine = CachedDecoder(model.decoder, backend=backend)
        self.assert_fresh(engine, model.double(), 1e-6)

    def test_refreshed_in_inference_mode_used_outside(self, model, backend):
        engine = CachedDecoder(model.decoder, backend=backend)
        encoder_out, _tokens = encode(model), random_tokens(3, 5)
        with torch.no_grad():
            model.decoder.layers[0].fc1.bias.add_(1)
        with torch.inference_mode():
            engine.refresh()
            engine.start(encoder_out, 80)
        self.assert_fresh(engine, model)

    def test_unchanged_weights_are_not_laid_out_again(self, model, backend):
        engine = CachedDecoder(model.decoder, backend=backend)
        layers, kernels = engine._layers, engine._native
        self.assert_fresh(engine, model)
        assert engine._layers is layers and engine._native is kernels


def test_results_carry_no_gradient(backend):
    model = build_model()
    engine = CachedDecoder(model.decoder, backend=backend)
    encoder_out = model.encoder(torch.randint(4, VOCABULARY, (2, 5)), torch.tensor([5, 5]))
    assert encoder_out["encoder_out"][0].requires_grad
    assert not logits_of(engine, engine.start(encoder_out, 8), random_tokens(2, 3)).requires_grad


class OwnFeatures(TransformerDecoder):
    def extract_features(self, *args, **kwargs):
        return super().extract_features(*args, **kwargs)


class Renamed(TransformerDecoder):
    pass


class TestSupports:
    @pytest.mark.parametrize(
        "options, reason",
        [
            ({"adaptive_softmax_cutoff": "8,16"}, "adaptive softmax"),
            ({"cross_self_attention": True}, "source and target at once"),
            ({"no_cross_attention": True}, "does not attend to a source"),
            # fairseq makes such a model, and cannot run it.
            (
                {"share_decoder_input_output_embed": True, "decoder_output_dim": 12},
                "another width",
            ),
            ({"scale_fc": True}, "NormFormer"),
            ({"scale_attn": True}, "NormFormer"),
            ({"scale_heads": True}, "NormFormer"),
            ({"scale_resids": True}, "NormFormer"),
            ({"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 8}, "quantization-noise"),
        ],
    )
    def test_gives_the_reason(self, options, reason):
        assert reason in CachedDecoder.unsupported(build_model(**options).decoder)

    def test_own_forward(self):
        decoder = build_model().decoder
        decoder.__class__ = OwnFeatures
        assert CachedDecoder.unsupported(decoder) == "OwnFeatures has its own extract_features()"

    def test_harmless_subclass(self):
        decoder = build_model().decoder
        decoder.__class__ = Renamed
        assert CachedDecoder.unsupported(decoder) is None

    def test_other_decoders(self):
        assert "LSTMDecoder" in CachedDecoder.unsupported(build_model("lstm").decoder)

    def test_pruned_heads(self):
        decoder = build_model().decoder
        decoder.layers[0].self_attn._adaptive_prune_heads([(0, 8)])
        assert "pruned" in CachedDecoder.unsupported(decoder)

    def test_replaced_linear(self):
        decoder = build_model().decoder
        decoder.layers[0].fc1 = torch.nn.Sequential(decoder.layers[0].fc1)
        assert CachedDecoder.unsupported(decoder) == "it has a Sequential for a linear map"


def packed_of(engine):
    """What an engine has packed of its layers."""
    layers = engine._layers if engine._native is None else [engine._native]
    return [engine._source_in, *layers]


def test_engines_share_what_is_packed_of_the_same_weights(backend):
    """A session has an engine for each of its searches."""
    model = build_model()
    first, second = (CachedDecoder(model.decoder, backend=backend) for _ in range(2))
    rounded = CachedDecoder(model.decoder, torch.bfloat16, backend=backend)
    before = packed_of(first)
    for one, other, less in zip(before, packed_of(second), packed_of(rounded), strict=True):
        assert one is other is not less
    with torch.no_grad():
        model.decoder.layers[0].fc1.weight.add_(1)
        model.decoder.layers[0].encoder_attn.k_proj.weight.add_(1)
    encoder_out, tokens = encode(model), random_tokens(3, 6)
    expected = full_logits(model, tokens, encoder_out)
    for engine in (second, first):
        engine.refresh()
        logits = feed_in_steps(engine, engine.start(encoder_out, 8), tokens, [6])
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    for one, other, old in zip(packed_of(first), packed_of(second), before, strict=True):
        assert one is other is not old
