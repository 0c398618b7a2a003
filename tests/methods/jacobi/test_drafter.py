"""Jacobi solvers against the paper's algorithms, fairseq's greedy search, and each other."""

import math
import sys
from argparse import Namespace

import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.generator import ParallelGenerator
from specdec_plugin.decoding.guard import Guard
from specdec_plugin.decoding.lengths import Lengths
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.state import Batch, Outcome, Rows
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.symbols import Symbols
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import NativeBackend, TorchBackend, build_engine
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods.checks import check_method_flags
from specdec_plugin.methods.jacobi import drafter as jacobi
from specdec_plugin.methods.jacobi.drafter import JacobiDrafter
from specdec_plugin.methods.jacobi.method import ADAPTIVE_BLOCKS, GaussSeidelJacobi
from specdec_plugin.methods.jacobi.native import NativeNgramLookup
from specdec_plugin.methods.jacobi.ngram_lookup import (
    INITIAL,
    ITERATE,
    LONGEST_MATCH,
    MATCH,
    MEMORY,
    ORDERS,
    ORIGINS,
    POOL,
    NgramLookup,
    Record,
    Window,
    initial_guesses,
)
from specdec_plugin.methods.registry import config_class
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.search import MODELS, SYMBOLS, VERIFYING, assert_same, ours, reference

JACOBI = ("jacobi", "gs-jacobi", "hybrid-jacobi")

PAD, EOS = SYMBOLS.pad(), SYMBOLS.eos()
KINDS = ["pad", "source", "random", "ngram"]
BACKENDS = [TorchBackend(), pytest.param(NativeBackend(), marks=needs_kernels)]
MAKERS = [NgramLookup, pytest.param(NativeNgramLookup, marks=needs_kernels)]
WINDOWS = [
    Window(block=2, size=3),
    Window(block=4, size=5),
    Window(block=3),
    Window(block=6, floor=0.2),
    Window(block=sys.maxsize),
]


def drafter(window=WINDOWS[0], initial="pad", **options):
    return JacobiDrafter(window, Symbols.of(SYMBOLS, SYMBOLS, EOS), initial, **options)


@settings(max_examples=100)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    models=st.sampled_from([[0], [1], [2], [0, 1]]),
    window=st.sampled_from(WINDOWS),
    initial=st.sampled_from(KINDS),
    until=st.sampled_from([1, 4, sys.maxsize]),
    entries=st.sampled_from([0, 7, 1000]),
    prefix_size=st.integers(0, 3),
    max_len=st.integers(3, 30),
    verifying=VERIFYING,
    seed=st.integers(0, 10**6),
)
def test_lossless_in_no_more_iterations_than_tokens(
    sources, models, window, initial, until, entries, prefix_size, max_len, verifying,
    seed,
):  # fmt: skip
    chosen, sample = [MODELS[index] for index in models], tiny.sample(sources, seed)
    prefix = None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(4, 16, (len(sources), prefix_size))
    expected = reference(chosen, sample, prefix, max_len_b=max_len)
    solver = drafter(window, initial, until=until, entries=entries)
    for _ in range(2):  # the second time with what the first has taught
        found, _ = ours(
            chosen, sample, solver, TopBeta(), prefix, verifying=verifying, max_len_b=max_len
        )
        assert_same(found, expected)
        assert all(row["steps"] <= len(row["tokens"]) for row in found)


@needs_kernels
@settings(max_examples=80)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    window=st.sampled_from(WINDOWS),
    initial=st.sampled_from(KINDS),
    until=st.sampled_from([5, sys.maxsize]),
    entries=st.sampled_from([0, 7, 1000]),
    max_len=st.integers(3, 25),
    seed=st.integers(0, 10**6),
)
def test_kernels_guess_what_operators_guess(
    sources, window, initial, until, entries, max_len, seed
):
    both = []
    for backend in (TorchBackend(), NativeBackend()):
        solver = drafter(window, initial, until=until, entries=entries, backend=backend)
        samples = [tiny.sample(sources, each) for each in (seed, seed + 1, seed)]
        options = {"max_len_b": max_len, "backend": backend}
        runs = [ours(MODELS[:1], sample, solver, TopBeta(), **options) for sample in samples]
        both.append((runs, solver._record))
    (expected, one), (found, other_record) = both
    for (mine, _), (theirs, _) in zip(found, expected, strict=True):
        for row, other in zip(mine, theirs, strict=True):
            steps = [[step["tokens"].tolist() for step in each["history"]] for each in (row, other)]
            assert steps[0] == steps[1]
    assert one.tries.tolist() == other_record.tries.tolist()
    assert one.hits.tolist() == other_record.hits.tolist()
    assert entries == 0 or one.pool.tolist() == other_record.pool.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
def test_batches_that_came_before_save_iterations_until_they_are_forgotten(backend):
    solver, sample = drafter(Window(block=6), "ngram", entries=1000, backend=backend), [5, 3]

    def iterations():
        _, statistics = ours(MODELS[:1], tiny.sample(sample, 3), solver, TopBeta(), max_len_b=15)
        return statistics.iterations

    first = iterations()
    assert iterations() < first
    solver.forget()
    assert iterations() == first


LIMIT = 20


def greedily(model, encoded, tokens):
    """What fairseq's model says before and after each of the tokens, without a cache."""
    fed = torch.tensor([[EOS, *tokens]])
    with torch.no_grad():
        logits = model.decoder(fed, encoder_out=encoded)[0][0]
    logits[:, PAD] = -math.inf
    logits[0, EOS] = -math.inf  # fairseq's --min-len 1
    best = logits.argmax(1).tolist()
    return [EOS if place == LIMIT else token for place, token in enumerate(best)]


def gauss_seidel(model, sample, size, guess):
    """Santilli et al. (2023), Algorithm 2, keeping what is settled: the output and the iterates.

    Nothing is guessed beyond the limit, nor behind an end of sentence.
    """
    encoded = model.encoder.forward_torchscript(sample["net_input"])
    settled, iterates = [], []
    block = [guess] * size
    while EOS not in settled:
        iterate = block[: min(len(block), LIMIT + 1 - len(settled)) - 1]
        iterate = iterate[: iterate.index(EOS) + 1] if EOS in iterate else iterate
        iterates.append(iterate)
        said = greedily(model, encoded, settled + iterate)[len(settled) :]
        right = 0
        while right < len(iterate) and said[right] == iterate[right]:
            right += 1
        new = said[: right + 1]
        settled += new[: new.index(EOS) + 1] if EOS in new else new
        place = len(settled) % size
        # What was not computed, behind an end of sentence, is as it was before.
        rest = said[right + 1 :] + block[len(said) :]
        block = [guess] * size if place == 0 else rest
    return settled, iterates


@pytest.mark.parametrize("size", [1, 2, 3, 5])
@pytest.mark.parametrize("seed", range(8))
def test_blocks_are_those_of_the_paper(size, seed):
    """With guesses that fairseq's decoder does not mask, as it would mask padding."""
    model, sample, guess = MODELS[seed % 3], tiny.sample([5], seed), 4 + seed
    solver = drafter(Window(block=size - 1, size=size), "random")
    solver._symbols = solver._symbols._replace(ordinary=torch.tensor([guess]))
    tokens, iterates = gauss_seidel(model, sample, size, guess)
    (expected,) = reference([model], sample, max_len_b=LIMIT)
    (found,), _ = ours([model], sample, solver, TopBeta(), max_len_b=LIMIT)
    assert found["tokens"].tolist() == expected["tokens"].tolist() == tokens
    assert [step["tokens"].tolist() for step in found["history"][::2]] == iterates


def test_whole_sentences_start_from_padding_and_end_at_the_limit():
    sample = tiny.sample([5], 3)
    (found,), statistics = ours(
        MODELS[:1], sample, drafter(Window(block=sys.maxsize)), TopBeta(), max_len_b=9
    )
    assert found["history"][0]["tokens"].tolist() == [PAD] * 9
    assert max(statistics.draft_lengths) == 9
    assert_same([found], reference(MODELS[:1], sample, max_len_b=9))


def test_hybrid_goes_on_one_by_one():
    sample = tiny.sample([6], 7)
    solver = drafter(Window(block=2, size=3), until=4)
    (found,), _ = ours(MODELS[:1], sample, solver, TopBeta(), max_len_b=12)
    assert_same([found], reference(MODELS[:1], sample, max_len_b=12))
    length, lengths = 0, []
    for drafted, added in zip(found["history"][::2], found["history"][1::2], strict=True):
        lengths.append((length, len(drafted["tokens"])))
        length += len(added["tokens"])
    assert all(drafted == (max(0, 2 - place % 3) if place < 3 else 0) for place, drafted in lengths)
    assert length > 5


@pytest.mark.parametrize("backend", BACKENDS)
@settings(max_examples=80)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    window=st.sampled_from(WINDOWS),
    initial=st.sampled_from(KINDS),
    wrong=st.integers(-3, 3),
    seed=st.integers(0, 10**6),
)
def test_nothing_is_drafted_behind_a_known_length(sources, window, initial, wrong, backend, seed):
    """Whatever the targets' lengths are, the output is that of greedy decoding."""
    sample = tiny.sample(sources, seed)
    expected = reference(MODELS[:1], sample, max_len_b=15)
    known = [max(1, len(row["tokens"]) + wrong) for row in expected]
    target = torch.full((len(known), max(known)), PAD)
    for row, length in enumerate(known):
        target[row, :length] = EOS
    solver = drafter(window, initial, backend=backend, known_length=True)
    found, _ = ours(
        MODELS[:1], {**sample, "target": target}, solver, TopBeta(), backend=backend, max_len_b=15
    )
    assert_same(found, expected)
    for row, length in zip(found, known, strict=True):
        decoded = 0
        for drafted, added in zip(row["history"][::2], row["history"][1::2], strict=True):
            assert len(drafted["tokens"]) <= max(0, length - decoded - 1)
            decoded += len(added["tokens"])


@pytest.mark.parametrize("backend", BACKENDS)
def test_each_row_is_drafted_up_to_its_own_known_length(backend):
    """Also where the longest row has left."""
    solver = drafter(Window(block=sys.maxsize), backend=backend, known_length=True)
    known, sources = [2, 8, 5], {"src_tokens": torch.full((3, 1), EOS)}
    target = torch.tensor([[EOS] * length + [PAD] * (8 - length) for length in known])
    limits = Constraints(PAD, 3, EOS, 0.0, 1, 20)
    solver.start(Batch(sources, [], EOS, limits, target=target))
    rows = rows_of([[], [], []])
    assert solver.propose(rows).lengths.tolist() == [1, 7, 4]
    for left, lengths in (([0, 2], [1, 4]), ([1], [4])):
        rows.select(left)
        solver.select(torch.tensor(left))
        assert solver.propose(rows).lengths.tolist() == lengths


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_a_known_length_cuts_off_is_not_judged(backend):
    solver = drafter(Window(block=sys.maxsize), backend=backend, known_length=True)
    target = torch.tensor([[5, EOS] + [PAD] * 4, [5] * 5 + [EOS]])
    limits = Constraints(PAD, 3, EOS, 0.0, 1, 20)
    solver.start(Batch({"src_tokens": torch.full((2, 1), EOS)}, [], EOS, limits, target=target))
    draft, before = solver.propose(rows_of([[], []])), solver._record.tries.sum()
    drafted = draft.lengths.tolist()
    assert drafted == [1, 5]
    rows = rows_of(
        [line[:count] + [7] for line, count in zip(draft.tokens.tolist(), drafted, strict=True)]
    )
    argmax = torch.full((2, 6), 7)
    solver.accept(rows, Outcome(drafted, drafted, [2, 6], [0, 0], argmax))
    assert solver._record.tries.sum() - before == sum(drafted)


def rows_of(tokens, room=24):
    """Rows with these tokens chosen so far."""
    count = len(tokens)
    net_input = {"src_tokens": torch.zeros(count, 1, dtype=torch.long)}
    rows = Rows(Batch(net_input, [], EOS, Constraints(PAD, 3, EOS, 0.0, 1, room - 1)))
    for row, chosen in enumerate(tokens):
        rows.inputs[row, 1 : len(chosen) + 1] = torch.tensor(chosen)
    rows.lengths = torch.tensor([len(chosen) for chosen in tokens])
    rows.sync_lengths(rows.lengths.tolist())
    return rows


def learned(lookup, rows, argmax=None):
    """Let a lookup accept what ``rows`` hold now, with this argmax of the last iteration."""
    count = rows.size
    table = torch.full((count, 1), PAD) if argmax is None else torch.tensor(argmax)
    drafted = [table.size(1) - 1] * count
    lookup.accept(rows, Outcome(drafted, [0] * count, [0] * count, [0] * count, table))


def padding(rows, room=24):
    """Initial guesses of padding."""
    return torch.full((rows, room), PAD)


def naive_match(source, output, line):
    """What follows the longest end of the line in either text: (token, length), or none."""
    found = (None, 0)
    for text in (source, output):
        for place in range(1, len(text)):
            length = 0
            while (
                length < min(LONGEST_MATCH, place, len(line))
                and text[place - 1 - length] == line[-1 - length]
            ):
                length += 1
            if text[place] >= 0 and length >= max(1, found[1]):
                found = (text[place], length)
    return found


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=150)
@given(
    sources=st.lists(st.lists(st.integers(-1, 6), min_size=8, max_size=8), min_size=1, max_size=3),
    outputs=st.lists(st.lists(st.integers(2, 6), max_size=10), min_size=3, max_size=3),
)
def test_the_longest_match_is_continued(sources, outputs, maker):
    outputs = outputs[: len(sources)]
    record = Record(0)
    record.hits[INITIAL] = 0.0  # any match is better than padding
    initial = padding(len(sources))
    lookup = maker(Window(block=3), record, 99, torch.tensor(sources), initial)
    draft = lookup.draft(rows_of(outputs), 24)
    for row, (source, output) in enumerate(zip(sources, outputs, strict=True)):
        line = [EOS, *output]
        for _ in range(3):
            token, length = naive_match(source, output, line)
            line.append(PAD if length == 0 else token)
        assert draft.tokens[row].tolist() == line[-3:]


@pytest.mark.parametrize("maker", MAKERS)
@settings(max_examples=60)
@given(
    texts=st.lists(st.lists(st.integers(4, 7), min_size=1, max_size=12), min_size=1, max_size=4),
)
def test_the_pool_says_what_followed_last(texts, maker):
    record, followers = Record(100_003), {}
    for text in texts:
        rows = rows_of([[]])
        lookup = maker(Window(block=0), record, EOS, None, padding(1))
        rows.inputs[0, 1 : len(text) + 1] = torch.tensor(text)
        rows.lengths = torch.tensor([len(text)])
        rows.sync_lengths([len(text)])
        learned(lookup, rows)
        line = [EOS, *text]
        for place in range(1, len(line)):
            for order in range(1, min(ORDERS, place) + 1):
                followers[tuple(line[place - order : place])] = line[place]
    for symbols, follower in followers.items():
        assert record.follower(list(symbols)) == follower
    for order in range(1, ORDERS + 1):
        assert record.follower([8] * order) == -1


@pytest.mark.parametrize("maker", MAKERS)
def test_rates_count_what_was_right_up_to_the_first_that_was_wrong(maker):
    record = Record(0)
    record.tries[:], record.hits[:] = 2.0, 1.0
    rows, initial = rows_of([[5], [6]]), padding(2)
    initial[:, 1:5] = torch.tensor([[7, 8, 9, 10], [7, 8, 9, 10]])
    lookup = maker(Window(block=4), record, EOS, None, initial)
    learned(lookup, rows)
    lookup.draft(rows, 24)
    rows.inputs[:, 2:5] = torch.tensor([[7, 8, 4], [4, 0, 0]])
    rows.lengths = torch.tensor([4, 2])
    rows.sync_lengths([4, 2])
    learned(lookup, rows)
    assert record.tries.tolist() == [2.0 + 4.0] + [2.0] * (ORIGINS - 1)
    assert record.hits.tolist() == [1.0 + 2.0] + [1.0] * (ORIGINS - 1)
    assert ITERATE < MATCH < POOL < ORIGINS


@pytest.mark.parametrize("maker", MAKERS)
def test_of_many_tries_recent_ones_count_most(maker):
    record = Record(0)
    record.tries[:], record.hits[:] = MEMORY, 8
    record.tries[MATCH] += 1
    lookup = maker(Window(block=0), record, EOS, None, padding(1))
    learned(lookup, rows_of([[5]]))
    halved = [origin == MATCH for origin in range(ORIGINS)]
    assert record.tries.tolist() == [(MEMORY + 1) / 2 if half else MEMORY for half in halved]
    assert record.hits.tolist() == [4 if half else 8 for half in halved]


@pytest.mark.parametrize("maker", MAKERS)
def test_what_was_decoded_before_the_first_draft_is_learned_and_not_judged(maker):
    record, rows = Record(1000), rows_of([[5, 6, 7]])
    record.hits[INITIAL] = record.tries[INITIAL]  # no n-gram is better
    hits, initial = record.hits.copy(), padding(1)
    initial[0, 3] = 9
    lookup = maker(Window(block=1), record, EOS, None, initial)
    assert lookup.draft(rows, 24).tokens.tolist() == [[9]]
    assert [record.follower([each]) for each in (EOS, 5, 6, 7)] == [5, 6, 7, -1]
    rows.inputs[0, 4] = 9
    rows.lengths = torch.tensor([4])
    rows.sync_lengths([4])
    learned(lookup, rows)
    assert (record.hits - hits).tolist() == [1.0] + [0.0] * (ORIGINS - 1)


@pytest.mark.parametrize("maker", MAKERS)
def test_rows_are_read_where_they_moved_to_get_room(maker):
    rows, source = rows_of([[5]]), torch.tensor([[5, 7, 6, 8]])
    lookup = maker(Window(block=1), Record(0), EOS, source, padding(1, 300))
    assert lookup.draft(rows, 300).tokens.tolist() == [[7]]
    before = rows.inputs
    rows.make_room(200)
    assert rows.inputs is not before
    rows.inputs[0, 1] = 6
    assert lookup.draft(rows, 300).tokens.tolist() == [[8]]


@needs_kernels
@pytest.mark.parametrize("backend", [None, TorchBackend("of a test")])
def test_the_pool_learns_from_sentences_that_a_queue_decoded(backend):
    solver = drafter(WINDOWS[2], "ngram", entries=64, backend=backend)
    statistics = Statistics()
    step = VerifiedStep(Verifier([build_engine(MODELS[0])], statistics), TopBeta())
    loop = DecodingLoop(solver, step, statistics, gate=Guard())
    options = Lengths(max_positions=MODELS[0].max_decoder_positions())
    generator = ParallelGenerator(MODELS[:1], SYMBOLS, loop, statistics, options)
    found = generator.generate(MODELS[:1], tiny.sample([5, 3, 7]))
    assert statistics.iterations == statistics.tokens
    expected = Record(64)
    for (hypothesis,) in found:
        expected.learn([EOS, *hypothesis["tokens"].tolist()], 1)
        hypothesis["tokens"].zero_()  # it is the caller's
    assert (expected.pool >= 0).any()
    assert solver._record is None  # they wait until drafts are wanted
    constraints = Constraints(PAD, 3, EOS, 0.0, 1, 30)
    solver.start(Batch({"src_tokens": torch.tensor([[5, 2]])}, [], EOS, constraints))
    assert (solver._record.pool == expected.pool).all()
    assert not solver._waiting


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("forgotten", [False, True])
def test_of_sentences_that_wait_the_last_ones_are_learned_unless_they_are_forgotten(
    forgotten, backend, monkeypatch
):
    monkeypatch.setattr(jacobi, "_WAITING", 2)
    solver = drafter(WINDOWS[2], "ngram", entries=1000, backend=backend)
    for first in (5, 6, 7):
        solver.ended(torch.tensor([first, 9, EOS]))
    if forgotten:
        solver.forget()
    sources = {"src_tokens": torch.tensor([[5, EOS]])}
    solver.start(Batch(sources, [], EOS, Constraints(PAD, 3, EOS, 0.0, 1, 30)))
    followers = [solver._record.follower([first]) for first in (5, 6, 7)]
    assert followers == ([-1, -1, -1] if forgotten else [-1, 9, 9])


class TestInitialGuesses:
    """What is guessed before the first iteration."""

    def made(self, kind, sources=((1, 7, 3, 8, 2), (1, 1, 1, 9, 2)), target=SYMBOLS, width=4):
        tokens = torch.tensor(sources)
        batch = Batch({"src_tokens": tokens}, [], EOS, Constraints(PAD, 3, EOS, 0.0, 1, 30))
        symbols = Symbols.of(SYMBOLS, target, target.eos())
        source = symbols.of_source[tokens]
        return initial_guesses(kind, batch, symbols.ordinary, width, source).tolist()

    def test_padding(self):
        assert self.made("pad") == self.made("ngram") == [[PAD] * 4] * 2

    def test_the_source_without_padding_and_what_is_unknown(self):
        assert self.made("source") == [[7, 8, EOS, PAD], [9, EOS, PAD, PAD]]
        assert self.made("source", width=2) == [[7, 8], [9, EOS]]

    def test_another_dictionary_is_matched_by_symbol(self):
        target = Dictionary()
        for symbol in ("other", SYMBOLS[8]):
            target.add_symbol(symbol)
        assert self.made("source", target=target) == [[5, EOS, PAD, PAD], [EOS, PAD, PAD, PAD]]

    def test_random_ones_are_ordinary_and_always_the_same(self):
        made = self.made("random", width=30)
        assert made == self.made("random", width=30) and made[0] == made[1]
        assert len(set(made[0])) > 5 and min(made[0]) >= 4


class TestFlags:
    """``--decoding jacobi``, ``gs-jacobi`` and ``hybrid-jacobi``."""

    def built(self, method, backend=None, **flags):
        task = tiny.task()
        task.cfg = config_class()(decoding=method, **{"draft_rows": 0, **flags})
        check_method_flags(task.cfg)
        options = Namespace(beam=1, max_len_a=0, max_len_b=12)
        return build.build_generator(task, MODELS[:1], options, backend=backend)

    @pytest.mark.parametrize("method", JACOBI)
    @pytest.mark.parametrize("sources", [[4], [3, 6, 1]])
    def test_lossless_by_default(self, method, sources):
        sample = tiny.sample(sources, 2)
        found = [row[0] for row in self.built(method).generate(MODELS[:1], sample)]
        assert_same(found, reference(MODELS[:1], sample, max_len_b=12))

    @pytest.mark.parametrize(
        "method, flags, most",
        [
            ("jacobi", {}, 12),
            ("gs-jacobi", {"jacobi_window": "block"}, 2),
            ("gs-jacobi", {"jacobi_window": "block", "block_size": 5}, 4),
            ("gs-jacobi", {"jacobi_window": "sliding"}, 3),
            ("hybrid-jacobi", {"jacobi_window": "sliding", "block_size": 5}, 5),
            ("hybrid-jacobi", {"jacobi_window": "sliding", "hybrid_length": 2}, 1),
        ],
    )
    def test_how_much_is_guessed(self, method, flags, most):
        generator = self.built(method, jacobi_init="pad", jacobi_pool=0, **flags)
        generator.generate(MODELS[:1], tiny.sample([4], 2))
        assert max(generator.statistics.draft_lengths) == most

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize(
        "initial, guessed", [("pad", [PAD] * 3), ("source", [5, 6, 7]), ("ngram", [7, EOS])]
    )
    def test_what_followed_in_the_source_is_guessed_with_ngram_alone(
        self, initial, guessed, backend
    ):
        flags = {"jacobi_init": initial, "jacobi_window": "sliding", "block_size": 3}
        solver = self.built("gs-jacobi", backend, **flags).loop.drafter
        sources = {"src_tokens": torch.tensor([[4, 5, 6, 7, EOS]])}
        solver.start(Batch(sources, [], EOS, Constraints(PAD, 3, EOS, 0.0, 1, 20)))
        draft = solver.propose(rows_of([[6]]))
        assert draft.tokens[0, : draft.lengths[0]].tolist() == guessed

    @pytest.mark.parametrize("flags, fewer", [({}, True), ({"jacobi_pool": 0}, False)])
    def test_sentences_that_came_before_are_remembered_by_default(self, flags, fewer):
        generator, iterations = self.built("gs-jacobi", **flags), [0]
        for _ in range(2):
            generator.generate(MODELS[:1], tiny.sample([5, 3], 3))
            iterations.append(generator.statistics.iterations)
        assert (iterations[2] - iterations[1] < iterations[1]) == fewer

    @pytest.mark.parametrize("method", ["jacobi", "gs-jacobi"])
    def test_a_known_length_needs_targets(self, method):
        generator = self.built(method, jacobi_known_length=True)
        with pytest.raises(PluginError, match="decode a split with targets"):
            generator.generate(MODELS[:1], tiny.sample([3]))

    @pytest.mark.parametrize("on_cpu", [True, False])
    def test_an_adaptive_window_has_the_size_and_the_confidence_that_are_given(self, on_cpu):
        def window(**flags):
            cfg = config_class()(decoding="gs-jacobi", **flags)
            return GaussSeidelJacobi.window(Namespace(cfg=cfg, on_cpu=on_cpu))

        default = window()
        assert default.block == (min if on_cpu else max)(ADAPTIVE_BLOCKS) and default.floor > 0
        assert window(block_size=5) == default._replace(block=5)
        assert window(draft_confidence=0.3) == default._replace(floor=0.3)

    @pytest.mark.parametrize(
        "flags, words",
        [
            ({"block_size": -1}, "--block-size -1"),
            ({"hybrid_length": -1}, "--hybrid-length -1"),
            ({"jacobi_pool": -5}, "--jacobi-pool -5"),
            ({"draft_confidence": 0.3, "jacobi_window": "block"}, "--jacobi-window adaptive"),
        ],
    )
    def test_refused(self, flags, words):
        with pytest.raises(PluginError, match=words):
            self.built("hybrid-jacobi", **flags)

    @pytest.mark.parametrize("method", JACOBI)
    def test_without_kernels(self, method):
        sample, ours = tiny.sample([3, 6, 1], 2), self.built(method, TorchBackend())
        found = [row[0] for row in ours.generate(MODELS[:1], sample)]
        assert_same(found, reference(MODELS[:1], sample, max_len_b=12))
