"""Heads and projection by the kernels against PyTorch's operators."""

import ctypes

import pytest
import torch

from specdec_plugin.decoding.drafter import confident
from specdec_plugin.engine import TorchBackend, build_engine, native
from specdec_plugin.methods.blockwise.native import HeadsCall
from specdec_plugin.methods.blockwise.proposals import Proposals
from tests.support import tiny
from tests.support.heads import BLOCKWISE, FORMS, blockwise_model

EOS = 2


pytestmark = pytest.mark.usefixtures("seeded")


def sources(model, engine, rows, seed=0):
    """The engine's state for so many sources; with an even seed some rows have left already."""
    given = tiny.sample([1 + (seed + row) % 6 for row in range(rows + 2)], seed)["net_input"]
    with torch.no_grad():
        state = engine.start(model.encoder(given["src_tokens"], given["src_lengths"]), 4)
    state.select(torch.arange(rows) + (2 if seed % 2 == 0 else 0))
    return state


def by_kernels(proposals, states, never=1, floor=0.0, least=0, state=None):
    rows, block = states.size(0), len(proposals.numbers)
    tokens = torch.zeros(rows, block, dtype=torch.long)
    lengths = torch.empty(rows, dtype=torch.long)
    call = HeadsCall(
        rows=rows, block=block, hidden=states.data_ptr(), suppressed_id=never, eos=EOS,
        confidence=floor, min_draft=least, draft=tokens.data_ptr(),
        draft_lengths=lengths.data_ptr(),
    )  # fmt: skip
    if state is not None:
        proposals.describe_source(state, call)
    native.library().heads_run(
        proposals.native, proposals.projection, ctypes.byref(call), torch.get_num_threads()
    )
    return tokens, lengths


def wanted(proposals, states, never=1, floor=0.0, least=0, state=None):
    scores = proposals.scores(states, never, state)
    best, tokens = scores.values.max(2)
    lengths = confident(best - scores.normalisers, floor).clamp(min=least)
    lengths = lengths.clamp(max=tokens.size(1)).tolist()
    for row, said in enumerate(tokens.tolist()):
        if EOS in said:
            lengths[row] = min(lengths[row], said.index(EOS) + 1)
    return tokens, lengths


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [1, 2, 5, 19])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_kernels(form, rows, threads):
    model = blockwise_model(3, form[0], k=11, learned_first_head=form[1])
    engine = build_engine(model)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    ends = 0
    try:
        for seed in range(8):
            torch.manual_seed(seed)
            states = torch.randn(rows, 16)
            k = [11, 2, 6][seed % 3]
            proposals = Proposals(model.heads, engine, k, torch.float32)
            floor, least = [0.0, 0.01, 0.3][seed % 3], seed % 4
            state = sources(model, engine, rows, seed)
            found = by_kernels(proposals, states, floor=floor, least=least, state=state)
            tokens, lengths = wanted(proposals, states, floor=floor, least=least, state=state)
            assert found[1].tolist() == lengths
            for row, length in enumerate(lengths):
                assert found[0][row, :length].tolist() == tokens[row, :length].tolist()
            ends += any(length < k - 1 for length in lengths)
    finally:
        torch.set_num_threads(before)
    assert ends


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.int8])
@pytest.mark.parametrize("form", ["joint", "separate", "source"])
def test_rounded_heads_mostly_say_the_same(dtype, form):
    model, states = BLOCKWISE[form, False], torch.randn(200, 16)
    engine = build_engine(model)
    exact = Proposals(model.heads, engine, 5, torch.float32)
    rounded = Proposals(model.heads, engine, 5, dtype)
    assert rounded.weight_type == dtype
    said = [
        by_kernels(each, states, state=sources(model, engine, 200)) for each in (exact, rounded)
    ]
    same = said[0][0][:, 0] == said[1][0][:, 0]
    assert same.float().mean() > 0.9


def test_a_large_vocabulary():
    symbols = tiny.dictionary(3000)
    model = blockwise_model(2, symbols=symbols)
    proposals = Proposals(model.heads, build_engine(model), 5, torch.float32)
    states = torch.randn(3, 16)
    found, expected = by_kernels(proposals, states), wanted(proposals, states)
    for row, length in enumerate(expected[1]):
        assert found[0][row, :length].tolist() == expected[0][row, :length].tolist()


def test_states_that_are_no_numbers_do_no_harm():
    model = BLOCKWISE["joint", False]
    proposals = Proposals(model.heads, build_engine(model), 5, torch.float32)
    tokens, lengths = by_kernels(proposals, torch.full((2, 16), float("nan")), floor=0.5)
    assert bool(((tokens >= 0) & (tokens < 16)).all())
    assert bool(((lengths >= 0) & (lengths <= 4)).all())


def test_without_kernels_in_another_type():
    model, states = BLOCKWISE["separate", False], torch.randn(4, 16)
    engine = build_engine(model, backend=TorchBackend())
    plain, half = (Proposals(model.heads, engine, 5, each) for each in (None, torch.bfloat16))
    assert plain.native is None and half.native is None
    assert half.weight_type == torch.bfloat16
    expected, found = plain.scores(states, 1, None), half.scores(states, 1, None)
    torch.testing.assert_close(found.normalisers, expected.normalisers, atol=0.2, rtol=0.05)
    assert model.heads.inner.weight.dtype == torch.float32


def test_changed_weights_are_laid_out_again():
    model, states = blockwise_model(4), torch.randn(6, 16)
    proposals = Proposals(model.heads, build_engine(model), 5, torch.float32)
    with torch.no_grad():
        model.heads.outer.weight.normal_(std=0.5)
    stale = by_kernels(proposals, states)[0]
    proposals.refresh()
    tokens, lengths = wanted(proposals, states)
    fresh = by_kernels(proposals, states)[0]
    for row, length in enumerate(lengths):
        assert fresh[row, :length].tolist() == tokens[row, :length].tolist()
    assert not torch.equal(stale, fresh)
