"""SourceCopy of the source as drafts, against the paper's algorithm and fairseq's greedy search."""

from argparse import Namespace
from unittest.mock import Mock

import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.drafter import Drafter
from specdec_plugin.decoding.state import Batch, Draft, Rows
from specdec_plugin.decoding.symbols import Symbols
from specdec_plugin.engine import TorchBackend
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods import setup as method_setup
from specdec_plugin.methods.checks import check_method_flags
from specdec_plugin.methods.input_guided.drafter import InputGuidedDrafter
from specdec_plugin.methods.input_guided.method import InputGuided
from specdec_plugin.methods.input_guided.native import NativeSourceCopy
from specdec_plugin.methods.input_guided.source_copy import NEAR, SourceCopy
from specdec_plugin.methods.registry import config_class
from specdec_plugin.methods.setup import _ROWS_ON_CPU, Setup
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.drafters import K, drafter_model
from tests.support.hostile import HostileDrafter
from tests.support.search import MODELS, SYMBOLS, VERIFYING, assert_same, ours, reference

EOS = SYMBOLS.eos()
MAKERS = [SourceCopy, pytest.param(NativeSourceCopy, marks=needs_kernels)]


def drafter(block_size=50, longest=False, fallback=None, backend=None):
    symbols = Symbols.of(SYMBOLS, SYMBOLS, EOS)
    return InputGuidedDrafter(symbols, block_size, longest, fallback, backend=backend)


@settings(max_examples=80)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    models=st.sampled_from([[0], [1], [2], [0, 1]]),
    block_size=st.sampled_from([1, 3, 50]),
    longest=st.booleans(),
    hostile=st.booleans(),
    prefix_size=st.integers(0, 3),
    max_len=st.integers(3, 20),
    backend=st.sampled_from([None, TorchBackend()]),
    verifying=VERIFYING,
    seed=st.integers(0, 10**6),
)
def test_lossless(
    sources, models, block_size, longest, hostile, prefix_size, max_len, backend, verifying, seed
):
    chosen, sample = [MODELS[index] for index in models], tiny.sample(sources, seed)
    prefix = None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(4, 16, (len(sources), prefix_size))
    expected = reference(chosen, sample, prefix, max_len_b=max_len)
    truth = [row["tokens"].tolist() for row in expected]
    fallback = HostileDrafter(truth, 0.5, 4, seed) if hostile else None
    guided = drafter(block_size, longest, fallback, backend)
    options = {"backend": backend, "verifying": verifying, "max_len_b": max_len}
    found, _ = ours(chosen, sample, guided, TopBeta(), prefix, **options)
    assert_same(found, expected)
    assert all(row["steps"] <= len(row["tokens"]) for row in found)


def places(text, part):
    """Where ``part`` ends in ``text``."""
    width = len(part)
    return [end for end in range(width, len(text) + 1) if text[end - width : end] == part]


def algorithm_1(source, output, longest, replacing):
    """Where the draft begins: behind the shortest end that occurs only once (Ge et al., 2022,
    Algorithm 1, line 3); with ``longest`` behind the nearest longest, or else at ``replacing``."""
    text, line = ["start", *source], ["start", *output]
    ends = [places(text, line[-width:]) for width in range(1, len(line) + 1)]
    if not longest:
        return next((each[0] - 1 for each in ends if len(each) == 1), len(source))
    matching = [each for each in ends if each]
    at_most = min(replacing, len(source))
    if not matching:
        return at_most
    nearest = min(matching[-1], key=lambda end: (abs(end - 1 - replacing), end)) - 1
    if len(matching) == 1 and abs(nearest - replacing) > NEAR:
        return at_most
    return nearest


def copies(maker, source, start, block_size=50, longest=False):
    starts = torch.tensor([start])
    return maker(torch.tensor([source]), starts, block_size, EOS, longest)


def rows_of(*outputs, room=24):
    net_input = {"src_tokens": torch.zeros(len(outputs), 1, dtype=torch.long)}
    rows = Rows(Batch(net_input, [], EOS, Constraints(1, 3, EOS, 0.0, 1, room - 1)))
    choose(rows, *outputs)
    return rows


def choose(rows, *outputs):
    for row, output in enumerate(outputs):
        rows.inputs[row, 1 : len(output) + 1] = torch.tensor(output, dtype=torch.long)
    rows.lengths = torch.tensor([len(output) for output in outputs])
    rows.sync_lengths(rows.lengths.tolist())


def drafted(draft, row=0):
    return draft.tokens[row, : draft.lengths[row]].tolist()


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=300)
@given(
    text=st.lists(st.integers(4, 6), max_size=8),
    padding=st.integers(0, 2),
    steps=st.lists(st.lists(st.integers(4, 7), min_size=1, max_size=4), max_size=4),
    longest=st.booleans(),
)
def test_the_source_goes_on_where_the_algorithm_says(text, padding, steps, maker, longest):
    source = [*text, EOS]
    found = copies(maker, [-1] * padding + source, padding, longest=longest)
    rows, output, place = rows_of([]), [], 0
    assert drafted(found.draft(rows)) == source
    for step in steps:
        output = output + step
        choose(rows, output)
        place = algorithm_1(source, output, longest, place + len(step))
        assert drafted(found.draft(rows)) == source[place:]


@pytest.mark.parametrize("maker", MAKERS)
def test_rows_follow_their_own_source_and_leave(maker):
    sources = torch.tensor([[4, 5, 6, 7, EOS], [-1, -1, 8, 9, EOS], [5, 5, 6, 5, EOS]])
    found = maker(sources, torch.tensor([0, 2, 0]), 3, EOS, False)
    rows = rows_of([], [], [])
    draft = found.draft(rows)
    assert [drafted(draft, row) for row in range(3)] == [[4, 5, 6], [8, 9, EOS], [5, 5, 6]]
    choose(rows, [4, 9], [9], [5, 6])
    draft = found.draft(rows)
    assert [drafted(draft, row) for row in range(3)] == [[], [EOS], [5, EOS]]
    rows.select([2, 0])
    found.select(torch.tensor([2, 0]))
    choose(rows, [5, 6, 4], [4, 9, 5])
    draft = found.draft(rows)
    assert [drafted(draft, row) for row in range(2)] == [[], [6, 7, EOS]]


@pytest.mark.parametrize("maker", MAKERS)
def test_drafts_end_at_what_the_output_has_no_symbol_for(maker):
    found = copies(maker, [4, 5, -1, 6, EOS], 0)
    rows = rows_of([])
    assert drafted(found.draft(rows)) == [4, 5]
    choose(rows, [4, 5, 3])
    assert drafted(found.draft(rows)) == []
    choose(rows, [4, 5, 3, 6])
    assert drafted(found.draft(rows)) == [EOS]


@pytest.mark.parametrize("maker", MAKERS)
def test_drafts_end_at_an_end_of_sentence_within_the_source(maker):
    found = copies(maker, [4, EOS, 5, EOS], 0)
    assert drafted(found.draft(rows_of([]))) == [4, EOS]


def test_padding_on_the_right():
    sample = tiny.sample([3, 6], 3)
    right = {"src_tokens": torch.tensor([[4, 5, EOS, 1, 1], [6, 7, 8, 9, EOS]])}
    guided = drafter()
    guided.start(Batch(right, [], EOS, Constraints(1, 3, EOS, 0.0, 1, 20)))
    draft = guided.propose(rows_of([], []))
    assert drafted(draft, 0) == [4, 5, EOS] and drafted(draft, 1) == [6, 7, 8, 9, EOS]
    assert len(sample["id"]) == 2


def fallback_drafter():
    """Drafts the same in every row, and remembers its calls."""
    made = Mock(spec=Drafter)
    made.propose.side_effect = lambda rows: Draft.of([[9, 10, 11]] * rows.size, rows.inputs.device)
    return made


def calls(fallback):
    return [name for name, *_ in fallback.method_calls]


def begun(fallback, backend, **options):
    """A drafter with two sources."""
    symbols = Symbols.of(SYMBOLS, SYMBOLS, EOS)
    guided = InputGuidedDrafter(symbols, 2, fallback=fallback, backend=backend, **options)
    sources = {"src_tokens": torch.tensor([[4, 5, 6, EOS], [7, 8, 4, EOS]])}
    guided.start(Batch(sources, [], EOS, Constraints(1, 3, EOS, 0.0, 1, 20)))
    return guided


@pytest.mark.parametrize("backend", [None, TorchBackend()])
def test_a_fallback_drafts_where_there_is_nothing_to_follow_and_is_asked_there_alone(backend):
    fallback = fallback_drafter()
    guided, rows = begun(fallback, backend), rows_of([], [])
    draft = guided.propose(rows)
    assert [drafted(draft, row) for row in range(2)] == [[4, 5], [7, 8]]
    assert calls(fallback) == ["start"]
    choose(rows, [3], [7])
    draft = guided.propose(rows)
    assert [drafted(draft, row) for row in range(2)] == [[9, 10, 11], [8, 4]]
    assert guided.iterate(rows, None, 4) is None


@pytest.mark.parametrize("backend", [None, TorchBackend()])
def test_a_fallback_is_asked_while_so_many_rows_are_left(backend):
    fallback = fallback_drafter()
    guided, rows = begun(fallback, backend, fallback_rows=1), rows_of([3], [3])
    assert guided.propose(rows).lengths.tolist() == [0, 0]
    guided.select(rows.select([1]))
    assert drafted(guided.propose(rows)) == [9, 10, 11]
    assert calls(fallback) == ["start", "select", "propose"]


def test_a_fallback_costs_what_it_does_and_stops():
    fallback = fallback_drafter()
    guided = begun(fallback, None)
    guided.stop()
    assert calls(fallback) == ["start", "stop"]
    assert guided.cost("work") is fallback.cost.return_value
    fallback.cost.assert_called_once_with("work", alone=False)
    assert begun(None, None).cost("work") == 0.0


@pytest.mark.parametrize("model", MODELS)
def test_a_copied_sentence_needs_one_iteration(model):
    """The dictionaries are made such that the model copies."""
    count = 8
    words = torch.arange(4, 4 + count)
    sample = tiny.sample([count])
    sample["net_input"]["src_tokens"][0, :-1] = words
    (expected,) = reference([model], sample, max_len_b=count)
    tokens = expected["tokens"][:-1]
    guided = drafter()
    of_source = guided._symbols.of_source.clone()
    of_source[words[: len(tokens)]] = tokens
    of_source[words[len(tokens) :]] = EOS
    guided._symbols = guided._symbols._replace(of_source=of_source)
    (found,), statistics = ours([model], sample, guided, TopBeta(), max_len_b=count)
    assert_same([found], [expected])
    assert found["steps"] == 1 and statistics.accepted_tokens == len(expected["tokens"])


def test_other_dictionaries_are_matched_by_symbol():
    target = Dictionary()
    for symbol in ("other", SYMBOLS[8], SYMBOLS[5]):
        target.add_symbol(symbol)
    symbols = Symbols.of(SYMBOLS, target, target.eos())
    tokens = torch.tensor([[1, 5, 7, 8, 3, EOS]])
    assert symbols.source(tokens).tolist() == [[-1, 6, -1, 5, -1, target.eos()]]


class TestFlags:
    """``--decoding input-guided``."""

    def built(self, **flags):
        task = tiny.task()
        task.cfg = config_class()(decoding="input-guided", **flags)
        check_method_flags(task.cfg)
        options = Namespace(beam=1, max_len_a=0, max_len_b=12)
        return build.build_generator(task, MODELS[:1], options)

    @pytest.mark.parametrize(
        "flags, guessed",
        [({}, [4, 5, 6, 7, 8, 9, 4, 5]), ({"block_size": 2}, [4, 5])],
    )
    def test_the_size_of_a_draft(self, flags, guessed):
        """On a CPU some tokens, where no size is given."""
        guided, limits = self.built(**flags).loop.drafter, Constraints(1, 3, EOS, 0.0, 1, 20)
        sources = {"src_tokens": torch.tensor([[4, 5, 6, 7, 8, 9, 4, 5, 6, EOS]])}
        guided.start(Batch(sources, [], EOS, limits))
        assert drafted(guided.propose(rows_of([]))) == guessed

    @pytest.mark.parametrize("flags, guessed", [({}, []), ({"fallback": "ngram"}, [8, 4, 9, EOS])])
    def test_of_several_matches_the_nearest_is_followed_where_it_is_asked_for(self, flags, guessed):
        guided, limits = self.built(**flags).loop.drafter, Constraints(1, 3, EOS, 0.0, 1, 20)
        sources = {"src_tokens": torch.tensor([[4, 8, 4, 9, EOS]])}
        guided.start(Batch(sources, [], EOS, limits))
        assert drafted(guided.propose(rows_of([7, 4]))) == guessed

    @pytest.mark.parametrize("block_size, least", [(0, K), (2, 2), (K + 3, K)])
    def test_a_trained_drafter_is_the_fallback_for_few_rows(self, block_size, least, monkeypatch):
        monkeypatch.setattr(method_setup, "load_model", lambda *paths: drafter_model("causal"))
        flags = {"fallback": "nat", "drafter_path": "drafter.pt", "block_size": block_size}
        guided = self.built(**flags).loop.drafter
        assert guided.fallback.block_size == least and guided.fallback.confidence > 0
        many = _ROWS_ON_CPU + 1
        limits = Constraints(1, 3, EOS, 0.0, 1, 20)
        guided.start(Batch(tiny.sample([5] * many)["net_input"], [], EOS, limits))
        assert guided.propose(rows_of(*[[3]] * many)).lengths.tolist() == [0] * many

    @pytest.mark.parametrize("rows, most", [(-1, None), (0, None), (2, 2)])
    def test_any_number_of_rows_is_drafted_for_where_none_is_given(self, rows, most):
        setup = Setup(Namespace(draft_rows=rows), None, [], None, EOS, None)
        assert InputGuided.max_rows(setup) == most

    @pytest.mark.parametrize("bias", [-0.5, 0.0, 2.0])
    def test_a_preference_has_the_bias_that_is_given(self, bias):
        setup = Namespace(cfg=Namespace(copy_bias=bias), symbols=lambda: None, backend=None)
        found = InputGuided.preference(setup)
        assert (found.bias if bias else found) == (bias or None)

    @pytest.mark.parametrize("flags", [{}, {"fallback": "ngram"}, {"block_size": 2}])
    def test_lossless(self, flags):
        sample = tiny.sample([3, 6, 1], 2)
        found = [row[0] for row in self.built(**flags).generate(MODELS[:1], sample)]
        assert_same(found, reference(MODELS[:1], sample, max_len_b=12))

    @pytest.mark.parametrize(
        "flags, words",
        [
            ({"block_size": -1}, "--block-size -1"),
            ({"fallback": "nat"}, "add --drafter-path"),
            ({"drafter_path": "drafter.pt"}, "--fallback nat"),
            ({"fallback": "ngram", "drafter_path": "drafter.pt"}, "--fallback nat"),
            ({"draft_confidence": 0.2}, "--fallback nat"),
        ],
    )
    def test_refused(self, flags, words):
        with pytest.raises(PluginError, match=words):
            self.built(**flags)
