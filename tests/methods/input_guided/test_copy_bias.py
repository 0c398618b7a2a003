"""``--copy-bias``: a greedy search in which the source's next token counts for more, or less."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.preference import most_preferred
from specdec_plugin.decoding.state import Draft
from specdec_plugin.decoding.symbols import Symbols
from specdec_plugin.engine import TorchBackend
from specdec_plugin.errors import PluginError
from specdec_plugin.methods.checks import check_beside, check_method_flags
from specdec_plugin.methods.input_guided.copy_bias import CopyBias
from specdec_plugin.methods.input_guided.native import NativeSourceNext
from specdec_plugin.methods.input_guided.source_copy import SourceNext
from specdec_plugin.methods.registry import config_class
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.hostile import HostileDrafter
from tests.support.search import MODELS, SYMBOLS, VERIFYING, assert_same, ours, reference

from .test_drafter import EOS, algorithm_1, choose, drafter, rows_of

MAKERS = [SourceNext, pytest.param(NativeSourceNext, marks=needs_kernels)]


def next_positions(source, output):
    """Where the source continues behind each beginning of the output."""
    positions = [0]
    for length in range(1, len(output) + 1):
        positions.append(algorithm_1(source, output[:length], True, positions[-1] + 1))
    return positions


def biased_greedy(model, source, bias, max_len):
    """Tokens and log-probabilities, from a whole pass of the model for each token."""
    tokens = torch.tensor([source])
    encoded = model.encoder(tokens, torch.tensor([len(source)]))
    output, scores = [], []
    while not output or output[-1] != EOS:
        logits, _ = model.decoder(torch.tensor([[EOS, *output]]), encoded)
        lprobs = logits[0, -1].log_softmax(-1)
        wanted = lprobs.clone()
        position = next_positions(source, output)[-1]
        if position < len(source):
            wanted[source[position]] += bias
        wanted[SYMBOLS.pad()] = -float("inf")
        if not output:
            wanted[EOS] = -float("inf")  # fairseq's --min-len is 1
        best = EOS if len(output) == max_len else int(wanted.argmax())
        output.append(best)
        scores.append(float(lprobs[best]))
    return output, scores


@settings(max_examples=60)
@given(
    lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    model=st.sampled_from(MODELS),
    bias=st.sampled_from([-3.0, -0.5, 0.7, 2.0, 6.0]),
    block_size=st.sampled_from([1, 3, 50]),
    longest=st.booleans(),
    hostile=st.booleans(),
    max_len=st.integers(3, 16),
    backend=st.sampled_from([None, TorchBackend()]),
    verifying=VERIFYING,
    seed=st.integers(0, 10**6),
)
@torch.no_grad()
def test_same_as_a_search_token_by_token(
    lengths, model, bias, block_size, longest, hostile, max_len, backend, verifying, seed
):
    sample = tiny.sample(lengths, seed)
    width = sample["net_input"]["src_tokens"].size(1)
    expected = [
        biased_greedy(model, line[width - length - 1 :].tolist(), bias, max_len)
        for line, length in zip(sample["net_input"]["src_tokens"], lengths, strict=True)
    ]
    truth = [tokens for tokens, _ in expected]
    fallback = HostileDrafter(truth, 0.5, 4, seed) if hostile else None
    found, _ = ours(
        [model],
        sample,
        drafter(block_size, longest, fallback, backend),
        TopBeta(),
        backend=backend,
        verifying=verifying,
        preference=CopyBias(Symbols.of(SYMBOLS, SYMBOLS, EOS), bias, backend),
        max_len_b=max_len,
    )
    for row, (tokens, scores) in zip(found, expected, strict=True):
        assert row["tokens"].tolist() == tokens
        torch.testing.assert_close(
            row["positional_scores"], torch.tensor(scores), atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=200)
@given(
    text=st.lists(st.integers(4, 6), max_size=8),
    padding=st.integers(0, 2),
    steps=st.lists(st.lists(st.integers(4, 7), min_size=1, max_size=4), max_size=4),
    draft=st.lists(st.integers(4, 7), max_size=5),
)
def test_the_next_token_follows_from_source_and_output_alone(text, padding, steps, draft, maker):
    source = [*text, EOS]
    found = maker(torch.tensor([[-1] * padding + source]), torch.tensor([padding]))
    rows, output = rows_of([]), []
    for step in [[], *steps]:
        output = output + step
        choose(rows, output)
        drafted = Draft.of([draft], torch.device("cpu"))
        positions = next_positions(source, [*output, *draft])[len(output) :]
        expected = [source[position] if position < len(source) else -1 for position in positions]
        assert found.after(rows, drafted).tolist() == [expected]


@pytest.mark.parametrize("maker", MAKERS)
def test_rows_leave(maker):
    found = maker(torch.tensor([[4, 5, 6, EOS], [-1, 7, 8, EOS]]), torch.tensor([0, 1]))
    rows = rows_of([], [])
    empty = Draft.of([[], []], torch.device("cpu"))
    assert found.after(rows, empty).tolist() == [[4], [7]]
    choose(rows, [4, 9], [7, 8])
    assert found.after(rows, empty).tolist() == [[6], [EOS]]  # 9 stands for 5
    rows.select([1])
    found.select(torch.tensor([1]))
    choose(rows, [7, 8, EOS])
    assert found.after(rows, Draft.of([[]], torch.device("cpu"))).tolist() == [[-1]]


def test_the_largest_bias_copies_and_none_changes_nothing():
    options = {"max_len_b": 12}
    largest = CopyBias(Symbols.of(SYMBOLS, SYMBOLS, EOS), 99.0)
    for lengths in ([2, 4], [5, 3]):  # in each batch anew
        sample = tiny.sample(lengths, 4)
        copied, _ = ours(MODELS[:1], sample, drafter(), TopBeta(), preference=largest, **options)
        for row, line in zip(copied, sample["net_input"]["src_tokens"], strict=True):
            assert row["tokens"].tolist() == [token for token in line.tolist() if token != 1]
    plain, _ = ours(MODELS[:1], sample, drafter(), TopBeta(), **options)
    assert_same(plain, reference(MODELS[:1], sample, **options))


def test_most_preferred_leaves_scores_as_they_are():
    values = torch.tensor([[[1.0, 3.0, 2.0], [1.0, 3.0, 2.0], [1.0, 3.0, -float("inf")]]])
    before = values.clone()
    tokens = torch.tensor([[2, -1, 2]])
    assert most_preferred(values, tokens, 1.5).tolist() == [[2, 1, 1]]
    assert most_preferred(values, torch.tensor([[1, 1, 0]]), -2.5).tolist() == [[2, 2, 1]]
    assert torch.equal(values, before)


def flags(**given):
    return config_class()(decoding="input-guided", **given)


def test_refusals():
    check_method_flags(flags(copy_bias=-0.5))
    with pytest.raises(PluginError, match="leave one of them out"):
        check_method_flags(flags(copy_bias=0.5, certified_projection=True))
    with pytest.raises(PluginError, match="--copy-bias 100"):
        check_method_flags(flags(copy_bias=100.0))
    with pytest.raises(PluginError, match="--copy-bias"):
        check_method_flags(config_class()(decoding="greedy", copy_bias=0.5))
    sampling = type("Generation", (), {"sampling": True})
    with pytest.raises(PluginError, match="prefers tokens of the source"):
        check_beside(flags(copy_bias=0.5), sampling)
