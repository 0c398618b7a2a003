"""The encoder on the kernels against fairseq's own."""

from unittest import mock

import pytest
import torch
from fairseq.models.transformer import TransformerEncoder

from specdec_plugin.engine import GraphBackend
from specdec_plugin.engine.encoder import FastEncoder, build_encoder
from specdec_plugin.engine.graphs import encoder
from specdec_plugin.engine.graphs.encoding import StaticEncoding
from specdec_plugin.errors import PluginError
from tests.support.architectures import VOCABULARY, build_model
from tests.support.sources import assert_equals_fairseqs, net_input

KINDS = {
    "post-norm": {},
    "pre-norm": {"encoder_normalize_before": True},
    "learned positions": {"encoder_learned_pos": True},
    "norm after embedding": {"layernorm_embedding": True},
    "no positions": {"no_token_positional_embeddings": True},
    "a layer behind the embedding": {"quant_noise_pq": 0.1},
    "gelu": {"activation_fn": "gelu"},
    "three layers": {"encoder_layers": 3},
    "heads of one vector": {"encoder_embed_dim": 32, "encoder_attention_heads": 2},
    "heads of two vectors": {"encoder_embed_dim": 64, "encoder_attention_heads": 2},
    "heads of four vectors": {"encoder_embed_dim": 64, "encoder_attention_heads": 1},
    "heads of eight vectors": {"encoder_embed_dim": 128, "encoder_attention_heads": 1},
}


@pytest.mark.parametrize("make", [FastEncoder, encoder.CapturedEncoder])
def test_a_source_beyond_the_learned_positions_is_refused(make):
    model = build_model(encoder_learned_pos=True, max_source_positions=8)
    with pytest.raises(PluginError, match=r"learned 8 source positions.* at most 8 tokens"):
        build = build_encoder(model, GraphBackend() if make is not FastEncoder else None)
        build(net_input([9]))


@pytest.mark.parametrize("make", [FastEncoder, encoder.CapturedEncoder])
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lengths", [[8], [6, 8]])
def test_a_batch_may_be_padded_beyond_the_learned_positions(make, left, lengths):
    """By --required-seq-len-multiple."""
    model = build_model(encoder_learned_pos=True, max_source_positions=8)
    batch = net_input([10, *lengths], left)
    batch = {name: each[1:] for name, each in batch.items()}
    build = build_encoder(model, GraphBackend() if make is not FastEncoder else None)
    assert_equals_fairseqs(model, batch, build(batch))


@pytest.mark.usefixtures("threads_again")
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("rows", [3, 70])
def test_rows_of_many_lengths(rows, threads, left):
    """More symbols than go through the layers at once, and fewer rows than threads."""
    lengths = [1 + 7 * row % 41 for row in range(rows)]
    model, batch = build_model(max_source_positions=64), net_input(lengths, left)
    torch.set_num_threads(threads)
    assert_equals_fairseqs(model, batch, build_encoder(model)(batch))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[9], [7, 5, 1], [4, 4]])
@pytest.mark.parametrize("left", [True, False])
def test_equals_fairseq(kind, lengths, left, backend):
    model = build_model(**KINDS[kind])
    batch = net_input(lengths, left)
    found = build_encoder(model, backend=backend)(batch)
    expected = assert_equals_fairseqs(model, batch, found)
    padding = expected["encoder_padding_mask"][0]
    assert found["encoder_padding_mask"] or not padding.any()
    for mask in found["encoder_padding_mask"]:
        assert torch.equal(mask, padding)
    assert torch.equal(found["src_lengths"][0], expected["src_lengths"][0])


def test_a_pad_symbol_amid_the_text_is_padding(backend):
    model = build_model()
    batch = net_input([8])
    batch["src_tokens"][0, 3] = 1
    found = build_encoder(model, backend=backend)(batch)["encoder_out"][0]
    with torch.no_grad():
        expected = model.encoder.forward_torchscript(batch)["encoder_out"][0]
    real = batch["src_tokens"].ne(1).t()
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("lengths", [[8, 3], [8] * 40])
def test_a_symbol_that_the_model_does_not_know_is_refused(backend, lengths):
    batch = net_input(lengths)
    batch["src_tokens"][0, 3] = VOCABULARY
    ours = backend.static or backend.unsupported() is None
    problem = PluginError if ours else IndexError
    with pytest.raises(problem, match=r"another dictionary|out of range"):
        build_encoder(build_model(), backend=backend)(batch)


def test_used_where_it_can_be(backend):
    assert isinstance(build_encoder(build_model(), backend=backend), FastEncoder) == (
        backend.unsupported() is None
    )
    for other in (
        build_model("lstm"),
        build_model().half(),
        build_model(activation_fn="tanh"),
    ):
        assert not isinstance(build_encoder(other, backend=backend), FastEncoder)


def test_notices_changed_weights(backend):
    model = build_model()
    encode, batch = build_encoder(model, backend=backend), net_input([6])
    encode(batch)
    with torch.no_grad():
        model.encoder.layers[0].fc1.weight.add_(1)
        expected = model.encoder.forward_torchscript(batch)["encoder_out"][0]
    torch.testing.assert_close(encode(batch)["encoder_out"][0], expected, atol=1e-5, rtol=1e-5)


class Shifted(TransformerEncoder):
    """Adds something to each vector."""

    def forward_embedding(self, src_tokens, token_embedding=None):
        x, embed = super().forward_embedding(src_tokens, token_embedding)
        return x + 0.5, embed


def test_an_embedding_of_its_own_is_used(backend):
    model = build_model()
    model.encoder.__class__ = Shifted
    batch = net_input([7, 5])
    found = build_encoder(model, backend=backend)(batch)
    assert_equals_fairseqs(model, batch, found)


def test_outputs_of_large_batches_are_not_kept(monkeypatch):
    monkeypatch.setattr(encoder, "MOST_SYMBOLS", 20)
    model = build_model()
    encode = build_encoder(model, backend=GraphBackend())
    kept = []
    for lengths in ([9], [9, 7, 3]):
        batch = net_input(lengths)
        with torch.no_grad():
            found = encode(batch)
        assert_equals_fairseqs(model, batch, found)
        kept.append(isinstance(found, StaticEncoding))
    assert kept == [True, False]


def test_what_is_held_outlives_the_next_batch(monkeypatch):
    """The next batch of about this size overwrites the tensors."""
    model = build_model()
    encode = build_encoder(model, backend=GraphBackend())
    first, shorter = net_input([9, 7]), net_input([4])
    with torch.no_grad():
        found = encode(first)
        assert found.fresh
        others = [encode(batch) for batch in (net_input([8, 9]), shorter, net_input([3]))]
    assert not found.fresh
    assert_equals_fairseqs(model, first, found)
    assert_equals_fairseqs(model, shorter, others[1])


def test_after_a_failure_nothing_is_held(monkeypatch):
    """What the tensors have then belongs to nobody."""
    model = build_model()
    encode = build_encoder(model, backend=GraphBackend())
    batch = net_input([9, 7])
    with torch.no_grad():
        found = encode(batch)
        with monkeypatch.context() as patch, pytest.raises(MemoryError):
            patch.setattr(encode, "_encoded", mock.Mock(side_effect=MemoryError))
            encode(net_input([9, 8]))
    assert not found.fresh
    assert_equals_fairseqs(model, batch, found)


def test_positions_of_a_longer_batch_are_padding_again():
    model = build_model()
    encode = build_encoder(model, backend=GraphBackend())
    for lengths in ([16, 9], [11, 12], [16, 16], [9, 9]):
        batch = net_input(lengths)
        with torch.no_grad():
            found = encode(batch)
        assert_equals_fairseqs(model, batch, found)
        padding = found.tensors.padded.sum()
        assert padding == found.tensors.padded.numel() - sum(lengths)
