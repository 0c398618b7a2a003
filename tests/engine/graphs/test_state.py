"""A batch in tensors that stay where they are gives what a batch in tensors of its own gives."""

import gc
import random
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.engine import CachedDecoder, GraphBackend, TorchBackend, choose_backend
from specdec_plugin.engine.graphs import tensors as module
from specdec_plugin.engine.graphs.tensors import GRAIN, Sizes, rounded
from tests.support.architectures import VOCABULARY, build_model, encode, random_tokens

MODEL = build_model(decoder_normalize_before=True)


def engines(model=MODEL):
    """One on tensors of its own, and one on static ones."""
    return [CachedDecoder(model.decoder, backend=each) for each in (TorchBackend(), GraphBackend())]


def assert_close(found, expected):
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_gpu_has_static_tensors():
    assert choose_backend(torch.device("cuda")).static
    assert not choose_backend(torch.device("cpu")).static


@given(st.integers(1, 5000), st.sampled_from([1, GRAIN]))
def test_sizes_are_rounded_up_a_little(size, grain):
    found = rounded(size, grain)
    assert size <= found <= max(size * 3 / 2, size + grain - 1)
    assert found % grain == 0 and rounded(found, grain) == found <= rounded(size + 1, grain)


@torch.no_grad()
def test_padding_stays_hidden_when_room_is_made():
    """The tensors of a batch are others then."""
    torch.manual_seed(1)
    encoder_out, tokens = encode(MODEL, [2, 40]), torch.randint(4, VOCABULARY, (2, 150))
    found = []
    for each in engines():
        state = each.start(encoder_out, 1)
        each.feed(state, tokens[:, :90])
        state.keep(torch.tensor([90, 90]), 90)
        found.append(each.feed(state, tokens[:, 90:]))
    assert_close(*found)


@settings(max_examples=40)
@given(
    sources=st.lists(st.integers(1, 70), min_size=1, max_size=9),
    capacity=st.sampled_from([1, 20, 200]),
    seed=st.integers(0, 10**6),
)
def test_rows_that_advance_and_leave(sources, capacity, seed):
    """Ragged rows that leave before or after their newest tokens count, behind the capacity too."""
    choose = random.Random(seed)
    torch.manual_seed(seed)
    encoder_out = encode(MODEL, sources)
    decoders = engines()
    states = [each.start(encoder_out, capacity) for each in decoders]
    lengths = [0] * len(sources)
    for _ in range(12):
        new = choose.choice([1, 1, 2, 3, 5, 9, 17])
        tokens = torch.randint(4, VOCABULARY, (len(lengths), new))
        limits = None
        if choose.random() < 0.3:
            most = [length + new for length in lengths]
            limits = torch.tensor([[choose.randint(1, each) for _ in range(new)] for each in most])
        expected, found = (
            each.forward(
                state, each.embedding.of_tokens(tokens, state.lengths, state.longest), limits
            )
            for each, state in zip(decoders, states, strict=True)
        )
        assert_close(found, expected)
        added = [choose.randint(1, new) for _ in lengths]
        lengths = [length + more for length, more in zip(lengths, added, strict=True)]
        rows = [row for row in range(len(lengths)) if choose.random() < 0.8] or [0]
        if len(rows) < len(lengths) and choose.random() < 0.7:
            lengths = [lengths[row] for row in rows]
            for state in states:
                state.select(torch.tensor(rows))
        for state in states:
            state.keep(torch.tensor(lengths), max(lengths))


@pytest.mark.parametrize("beams", [2, 5])
def test_beams(beams):
    choose, sentences = random.Random(beams), 3
    encoder_out = encode(MODEL, [6, 4, 2])
    decoders = engines()
    states = [each.start(encoder_out, 8, beams) for each in decoders]
    order, left = torch.arange(sentences), None
    for length in range(1, 9):
        rows = states[0].lengths.size(0)
        tokens = random_tokens(rows, 1)
        expected, found = (
            each.feed(state, tokens) for each, state in zip(decoders, states, strict=True)
        )
        assert_close(found, expected)
        each_has = rows // len(order)
        kept = list(range(len(order)))
        left = None
        if length in (3, 6):
            kept.pop(choose.randrange(len(kept)))
            left = torch.tensor(kept)
        parents = [
            row * each_has + choose.randrange(each_has) for row in kept for _ in range(beams)
        ]
        order = order[kept]
        for state in states:
            state.keep(torch.full((rows,), length), length)
            state.fork(torch.tensor(parents), order, left)


def test_a_nan_does_not_spoil_the_next_batch():
    _, decoder = engines()
    tokens = random_tokens(2, 3)
    encoder_out = encode(MODEL, [6, 4])
    expected = decoder.feed(decoder.start(encoder_out, 8), tokens).clone()
    spoiled = {**encoder_out, "encoder_out": [encoder_out["encoder_out"][0] * float("nan")]}
    assert decoder.feed(decoder.start(spoiled, 8), tokens).isnan().all()
    assert_close(decoder.feed(decoder.start(encoder_out, 8), tokens), expected)


def tensors_of(state):
    return state._lease.tensors


def test_tensors_serve_one_batch_after_another():
    _, decoder = engines()
    encoder_out = encode(MODEL, [6, 4])
    first = decoder.start(encoder_out, 8)
    second = decoder.start(encoder_out, 8)
    own, others = tensors_of(first), tensors_of(second)
    assert own is not others
    del first
    gc.collect()
    third = decoder.start(encoder_out, 8)
    assert tensors_of(third) is own and tensors_of(second) is others


def test_tensors_that_are_too_many_are_freed(monkeypatch):
    _, decoder = engines()
    monkeypatch.setattr(module, "_KEPT", 1)
    for source in (6, 60, 200):
        state = decoder.start(encode(MODEL, [source]), 8)
        sizes = tensors_of(state).sizes
        del state
        gc.collect()
    assert list(decoder._pool._free) == [sizes] == [Sizes.of(1, 1, 201, 8 + GRAIN)]


def test_few_calls_are_kept(monkeypatch):
    _, decoder = engines()
    monkeypatch.setattr(module, "CALLS", 2)
    state = decoder.start(encode(MODEL, [6]), 8)
    for new in (1, 2, 3, 2):
        decoder.feed(state, random_tokens(1, new))
    assert [key[2] for key in tensors_of(state).calls._made] == [3, 2]


@pytest.mark.parametrize("kind", [{}, {"decoder_learned_pos": True, "max_target_positions": 100}])
@pytest.mark.parametrize("rows", [1, 3])
def test_greedy_steps(rows, kind):
    """Chosen one after another, or in one call, also behind the end of a table of positions."""
    model = build_model(**kind)
    plain, decoder = engines(model)
    encoder_out = encode(model, [6, 4, 2][:rows])
    states = [plain.start(encoder_out, 8), decoder.start(encoder_out, 8)]
    fed = random_tokens(rows, 1)
    for begin in range(0, 60, 20):
        lengths = torch.full((rows,), begin)
        for state in states:
            state.keep(lengths, begin)
        found = states[1].choose(decoder, fed, 20, 1).clone()
        chosen = []
        for step in range(20):
            scores = plain.projection.scores(plain.feed(states[0], fed), 1.0, 1)
            fed = scores.values.argmax(2)
            chosen.append(fed)
            states[0].keep(lengths + step + 1, begin + step + 1)
        assert found.tolist() == torch.cat(chosen, 1).tolist()


def test_what_is_dropped_is_freed_at_once(monkeypatch):
    """Memory of a GPU does not wait for Python's collector."""
    _, decoder = engines()
    monkeypatch.setattr(module, "_KEPT", 1)
    gc.collect()
    gc.disable()
    try:
        dropped = []
        for source in (6, 60, 200):
            state = decoder.start(encode(MODEL, [source]), 8)
            decoder.feed(state, random_tokens(1, 2))
            state.choose(decoder, random_tokens(1, 1), 3, 1)
            dropped.append(weakref.ref(tensors_of(state)))
            del state
        assert [each() is None for each in dropped] == [True, True, False]
    finally:
        gc.enable()
