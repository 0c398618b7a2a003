"""The fused kernels of a decoder and an encoder against PyTorch's operators.

Without a GPU they are interpreted, if TRITON_INTERPRET=1 was set before PyTorch was imported.
"""

import pytest
import torch
import torch.nn.functional as F
from fairseq.utils import get_activation_fn

from specdec_plugin.engine import CachedDecoder, GraphBackend, TorchBackend
from specdec_plugin.engine.barred import Barred
from specdec_plugin.engine.encoder import build_encoder
from specdec_plugin.engine.fused.flow import VECTORS, most_vectors
from specdec_plugin.engine.fused.projection import FusedProjection
from specdec_plugin.engine.fused.source import FusedSource, fused_source
from specdec_plugin.engine.graphs.layers import run_new
from specdec_plugin.engine.graphs.tensors import chosen
from specdec_plugin.engine.linear import Linear
from specdec_plugin.errors import PluginError
from tests.support.architectures import VOCABULARY, build_model, encode, moved
from tests.support.kernels import run_kernels
from tests.support.sources import assert_equals_fairseqs, net_input

pytestmark = pytest.mark.usefixtures("seeded")
CLOSE = {"atol": 1e-4, "rtol": 1e-4}


@pytest.fixture
def device(monkeypatch):
    """Where the kernels run."""
    return run_kernels(monkeypatch)


@pytest.fixture(params=["post-norm, relu", "pre-norm, gelu", "embedded, silu"])
def model(request):
    """A model of odd sizes."""
    form, activation = request.param.split(", ")
    built = build_model(
        decoder_embed_dim=24,
        encoder_embed_dim=24,
        decoder_ffn_embed_dim=44,
        decoder_normalize_before=form == "pre-norm",
        layernorm_embedding=form == "embedded",
    )
    for layer in [*built.encoder.layers, *built.decoder.layers]:
        layer.activation_fn = get_activation_fn(activation) if activation != "silu" else F.silu
    return built


@pytest.fixture
def both(model, device):
    """The decoder in fused kernels and on operators, each with the state of its batch."""
    encoded, decoder = moved(encode(model), device), model.decoder.to(device)
    ours, plain = (CachedDecoder(decoder, backend=b()) for b in (GraphBackend, TorchBackend))
    assert ours.runs_fused(VECTORS) and not ours.runs_fused(VECTORS + 1)
    assert ours._fused_source is not None
    return [(each, each.start(encoded, 8)) for each in (ours, plain)]


@torch.no_grad()
def test_states_are_those_of_pytorch(both, device):
    """For a token a row and for several, and when the cache has grown."""
    lengths = torch.zeros(3, dtype=torch.long, device=device)
    for new, kept in (
        (1, [1, 1, 1]),
        (5, [5, 2, 0]),
        (10, [7, 10, 3]),
        (8, [1, 2, 3]),
        (1, [1] * 3),
    ):
        tokens = torch.randint(4, VOCABULARY, (3, new), device=device)
        found, expected = (each.feed(state, tokens) for each, state in both)
        torch.testing.assert_close(found, expected, **CLOSE)
        lengths = lengths + torch.tensor(kept, device=device)
        for _, state in both:
            state.keep(lengths, int(lengths.max()))


@torch.no_grad()
def test_queries_see_what_they_may(both, device):
    """Tokens, and masks behind them that see all of their row."""
    for length in (0, 4):
        lengths = torch.tensor([length, length // 2, 0], device=device)
        outputs = []
        torch.manual_seed(length)
        vectors = torch.randn(3, 9, 24, device=device)
        limits = lengths.unsqueeze(1) + torch.tensor([1, 2, 3, 4, 9, 9, 9, 9, 9], device=device)
        for each, state in both:
            state.keep(lengths, length)
            outputs.append(each.forward(state, vectors, limits))
        torch.testing.assert_close(*outputs, **CLOSE)
        for each, state in both:  # entries that the next turn looks at
            each.feed(state, torch.full((3, 9), 5, device=device))


@torch.no_grad()
@pytest.mark.parametrize("held, norms", [([0, 0, 0], 0), ([4, 2, 0], 1), ([4, 0, 3], 2)], ids=str)
def test_some_outputs_are_wanted(both, held, norms, device):
    """Those of the masks of a draft, which see all of their row; of vectors in any order."""
    ours, state = both[0]
    if norms == 0:
        ours._fused._layers, ours._fused._final = ours._fused._layers[:0], None
    if norms == 2:
        ours._fused._final = ours._layers[0].own_norm
    state.keep(torch.tensor(held, device=device), max(held))
    tensors, visible = state.with_room(5)
    tensors.store.normal_()
    held = torch.tensor(held, device=device)
    limits = held.unsqueeze(1) + torch.tensor([1, 2, 5, 5, 5], device=device)
    vectors = torch.randn(3, 5, 24, device=device)
    wanted = torch.tensor([[1, 3], [4, 0], [2, 2]], device=device).unsqueeze(2)
    begin = tensors.store.clone()
    every = run_new(ours, tensors, vectors, held, visible, limits)
    entries = tensors.store.clone()
    tensors.store.copy_(begin)
    found = run_new(ours, tensors, vectors, held, visible, limits, wanted=wanted)
    torch.testing.assert_close(found, chosen(every, wanted), **CLOSE)
    # What is not wanted has keys and values, too.
    torch.testing.assert_close(tensors.store, entries, **CLOSE)


@torch.no_grad()
def test_what_is_not_seen_may_be_infinite(both, device):
    """As drafted tokens in half precision may be."""
    ours, state = both[0]
    vectors = torch.randn(3, 5, 24, device=device)
    expected = ours.forward(state, vectors).clone()
    vectors[:, 3:] = torch.inf
    found = ours.forward(state, vectors)
    torch.testing.assert_close(found[:, :3], expected[:, :3], **CLOSE)


@torch.no_grad()
def test_beams_share_the_source(both, device):
    for _, state in both[1:]:
        state.fork(torch.tensor([0, 0, 1, 1, 2, 2], device=device), torch.arange(6, device=device))
    (ours, state), (plain, expected_state) = both
    tokens = torch.randint(4, VOCABULARY, (6, 1), device=device)
    expected = plain.feed(expected_state, tokens)
    tensors, _ = state.with_room(1)
    held = torch.zeros(6, dtype=torch.long, device=device)
    embedded = ours.embedding.of_tokens_within(tokens, held)
    whole = tensors.store.new_zeros(2, 2, 6, 32, 2, 12)
    tensors.store = whole
    found = ours.run_fused(embedded, held, None, tensors, 2)
    torch.testing.assert_close(found, expected.flatten(0, 1), **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("vectors", [1, 2, 17, 32])
@pytest.mark.parametrize("vocabulary, dim, biased", [(70, 24, True), (4001, 33, False)])
@pytest.mark.parametrize("temperature, suppressed", [(1.0, -1), (0.7, 3)])
def test_the_best_symbols_are_those_of_pytorch(
    vectors, vocabulary, dim, biased, temperature, suppressed, device
):
    weight = torch.randn(vocabulary, dim, device=device)
    bias = torch.randn(vocabulary, device=device) if biased else None
    states = torch.randn(vectors, dim, device=device)
    found, scored = FusedProjection(weight, bias).best(states, temperature, suppressed)
    expected = (F.linear(states, weight, bias) / temperature).log_softmax(-1)
    if suppressed >= 0:
        expected[:, suppressed] = -torch.inf
    best, tokens = expected.max(-1)
    assert torch.equal(found, tokens)
    torch.testing.assert_close(scored, best, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("vectors", [1, 5])
def test_a_symbol_is_barred_at_the_first_steps(vectors, device):
    """It counts in the normaliser all the same, as for fairseq."""
    weight, states = torch.zeros(300, 16, device=device), torch.ones(vectors, 16, device=device)
    weight[7], weight[130] = 0.5, 0.25
    steps = torch.arange(vectors, device=device)
    found, scored = FusedProjection(weight, None).best(states, 1.0, -1, Barred(7, steps, 3))
    expected = F.linear(states, weight).log_softmax(-1)
    chosen = torch.where(steps < 3, 130, 7)
    assert torch.equal(found, chosen)
    torch.testing.assert_close(scored, expected.gather(1, chosen.unsqueeze(1))[:, 0], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("equal", [[2999, 40, 39], [17, 16], [1500, 3]])
def test_the_first_of_equal_scores_counts(equal, device):
    """In whichever part of the vocabulary symbols are."""
    weight = torch.zeros(3000, 16, device=device)
    weight[equal] = 0.5
    kernels, states = FusedProjection(weight, None), torch.ones(2, 16, device=device)
    first, second, *_ = sorted(equal)
    assert kernels.best(states, 1.0, -1)[0].tolist() == [first] * 2
    assert kernels.best(states[:1], 1.0, first)[0].item() == second


@torch.no_grad()
@pytest.mark.parametrize("width", [0, 4])
def test_a_draft_is_fed_as_by_pytorch(both, width, device):
    (ours, _), (plain, _) = both
    inputs = torch.randint(4, VOCABULARY, (3, 12), device=device)
    draft = torch.randint(4, VOCABULARY, (3, width), device=device)
    lengths = torch.tensor([0, 5, 11], device=device)
    found, expected = (each.embedding.of_draft(inputs, draft, lengths) for each in (ours, plain))
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("lines, inner, most", [(4, 4, VECTORS), (2048, 512, 8), (4096, 1024, 2)])
def test_wide_layers_are_multiplied_by_pytorch_where_vectors_are_many(lines, inner, most):
    """A program reads its weights for two vectors, and all read 16 MB at most."""
    assert most_vectors(torch.empty(lines, inner), 2) == most


@torch.no_grad()
@pytest.mark.parametrize("vectors", [1, 3])
def test_scores_in_half_precision_are_rounded_as_by_pytorch(vectors, device):
    """Two of them are equal then, and the first one counts."""
    weight = torch.zeros(300, 16, dtype=torch.float16, device=device)
    weight[[40, 200], 0], weight[200, 1] = 1.0, 2.0**-12
    states = torch.ones(vectors, 16, dtype=torch.float16, device=device)
    assert FusedProjection(weight, None).best(states, 1.0, -1)[0].tolist() == [40] * vectors
    exact = FusedProjection(weight.float(), None).best(states.float(), 1.0, -1)[0]
    assert exact.tolist() == [200] * vectors


@torch.no_grad()
@pytest.mark.parametrize("lengths", [[1], [9], [7, 5, 1]])
@pytest.mark.parametrize("left", [True, False])
def test_sources_are_encoded_as_by_fairseq(model, lengths, left, device):
    """Twice: CUDA captures the second time, and the third replays it."""
    model.to(device)
    encode = build_encoder(model, GraphBackend())
    assert encode._fused is not None
    for turn in range(3):
        torch.manual_seed(turn)
        batch = {name: each.to(device) for name, each in net_input(lengths, left).items()}
        assert_equals_fairseqs(model, batch, encode(batch))


@torch.no_grad()
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("lengths, slots", [([3], 4), ([5, 2, 0], 8), ([1, 1], 1)])
def test_keys_and_values_are_those_of_pytorch(lengths, slots, biased, device):
    """Padding may hold anything. A row of padding alone sees its first slot."""
    layers, heads, size = 2, 3, 8
    rows, source, dim, parts = len(lengths), max(lengths), heads * size, 2 * layers
    weight = torch.randn(parts * dim, dim, device=device)
    linear = Linear(weight, torch.randn(parts * dim, device=device) if biased else None)
    encoded = torch.randn(rows, source, dim, device=device)
    padded = torch.arange(source, device=device) >= torch.tensor(lengths, device=device)[:, None]
    real = encoded.masked_fill(padded.unsqueeze(2), 0)
    encoded[padded] = float("nan")
    outputs = torch.full((parts, rows, heads, slots, size), float("nan"), device=device)
    mask = torch.full((rows, 1, 1, slots), float("nan"), device=device)
    FusedSource(linear, heads).run(encoded, padded, outputs, mask)
    expected = F.linear(real, weight, linear.bias).view(rows, source, parts, heads, size)
    torch.testing.assert_close(outputs[:, :, :, :source], expected.permute(2, 0, 3, 1, 4), **CLOSE)
    assert (outputs[:, :, :, source:] == 0).all()
    shown = [[slot < max(1, length) for slot in range(slots)] for length in lengths]
    assert (mask.flatten(1) == 0).tolist() == shown
    assert mask.isinf().sum() == rows * slots - sum(map(sum, shown))


def test_a_source_of_another_width_is_projected_by_pytorch(device):
    """An encoder may be narrower than its decoder."""
    weight = torch.zeros(4 * 24, 24, device=device)
    assert fused_source(Linear(weight), 2, 3) is not None
    assert fused_source(Linear(weight[:, :16].contiguous()), 2, 3) is None


@torch.no_grad()
def test_long_sources_are_encoded_by_pytorch(device):
    model = build_model().to(device)
    encode = build_encoder(model, GraphBackend())
    most = encode._fused.most
    batch = {name: each.to(device) for name, each in net_input([most + 1]).items()}
    run, calls = encode._fused.run, []
    encode._fused.run = lambda *given: calls.append(1) or run(*given)
    assert_equals_fairseqs(model, batch, encode(batch))
    assert not calls


@torch.no_grad()
def test_a_symbol_that_is_in_no_dictionary_is_not_looked_up(device):
    if device.type == "cuda":
        pytest.skip("no other test could use the GPU afterwards")
    encode, batch = build_encoder(build_model(), GraphBackend()), net_input([3])
    assert encode._fused is not None
    batch["src_tokens"][0, 1] = VOCABULARY
    with pytest.raises(PluginError, match="symbol number"):
        encode(batch)  # which looks at what comes from the host
    with pytest.raises(IndexError, match="out of range"):
        encode._encoded(batch["src_tokens"], None)
