"""Iterations in one call of the kernels, or without the host, against the same one by one."""

import dataclasses
from functools import partial
from unittest import mock

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from specdec_plugin.decoding import captured_iterations, native_verification
from specdec_plugin.decoding.acceptance import MinBlock, TopBeta
from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.sampling import Settings
from specdec_plugin.decoding.state import Rows
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.symbols import Symbols
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import GraphBackend, NativeBackend, build_engine
from specdec_plugin.engine.graphs.tables import Tables
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from specdec_plugin.methods.blockwise.drafter import BlockwiseDrafter
from specdec_plugin.methods.blockwise.proposals import Proposals
from specdec_plugin.methods.input_guided.drafter import InputGuidedDrafter
from specdec_plugin.methods.jacobi.drafter import JacobiDrafter
from specdec_plugin.methods.jacobi.ngram_lookup import Window
from specdec_plugin.methods.self_draft.captured_drafter import CapturedDrafter
from specdec_plugin.methods.self_draft.drafter import SelfDrafter
from tests.support import methods, tiny
from tests.support.drafters import K, chained_model
from tests.support.heads import BLOCKWISE, EOS
from tests.support.search import MODELS, SYMBOLS, assert_same, reference


class Asked(FixedGate):
    """Lets at most so many iterations follow without a question."""

    def __init__(self, most):
        super().__init__()
        self.most, self.asked, self.skipped = most, 0, 0

    def choose(self, rows, tokens, drafts=True):
        self.asked += 1
        return super().choose(rows, tokens)

    def ahead(self):
        return self.most

    def skip(self, iterations):
        assert 0 <= iterations <= self.most
        self.skipped += iterations


def test_greedy_decoding_with_a_prefix_repeats_in_one_call(monkeypatch):
    calls, repeat = [], native_verification.NativeVerification.repeat_undrafted

    def counted(self, rows, most):
        calls.append(most)
        return repeat(self, rows, most)

    monkeypatch.setattr(native_verification.NativeVerification, "repeat_undrafted", counted)
    found = methods.generator("greedy", MODELS[0], options={"min_len": 11})
    sample, prefix = tiny.sample([4]), torch.full((1, 1), 5)
    ((hypothesis,),) = found.generate(MODELS[:1], sample, prefix_tokens=prefix)
    assert len(hypothesis["tokens"]) >= 11 and len(calls) <= 2


def trained(verifier, statistics, confidence=0.0):
    given = {"statistics": statistics, "backend": verifier.engines[0].backend}
    return NATDrafter(chained_model(), K, confidence=confidence, **given)


def rounded(verifier, statistics):
    return SelfDrafter(verifier, 5, torch.int8)


def copied(verifier, statistics):
    return CapturedDrafter(verifier, 5, torch.float32)


def solver(verifier, statistics):
    window = Window(block=3, floor=0.05)
    return JacobiDrafter(window, Symbols.of(SYMBOLS, SYMBOLS, EOS), "ngram", entries=64)


def heads(verifier, statistics):
    proposals = Proposals(BLOCKWISE["source", False].heads, verifier.engines[0], K, torch.float32)
    return BlockwiseDrafter(proposals, verifier, EOS, 0.01, statistics=statistics)


def copies(verifier, statistics):
    return InputGuidedDrafter(Symbols.of(SYMBOLS, SYMBOLS, EOS), 4, longest=True)


def nobody(verifier, statistics):
    return None


#: What drafts on a GPU. There is none here, so nothing is captured.
ON_GPUS = [trained, copied, nobody]
#: What drafts by the kernels, and for which model.
DRAFTERS = {
    trained: MODELS[0],
    rounded: MODELS[0],
    solver: MODELS[0],
    heads: BLOCKWISE["source", False],
    copies: MODELS[0],
    nobody: MODELS[0],
}


def decode(
    make,
    most,
    samples,
    min_len=1,
    max_len=15,
    verifier=None,
    rule=None,
    sampling=None,
    backend=None,
    gate=None,
    **certified,
):
    """Hypotheses, what was counted, and the gate."""
    statistics, gate = Statistics(), gate or Asked(most)
    model = verifier or DRAFTERS.get(make, MODELS[0])
    engine = build_engine(model, backend=backend or NativeBackend())
    verifying = Verifier([engine], statistics, **certified)
    step = VerifiedStep(verifying, rule or TopBeta())
    loop = DecodingLoop(make(verifying, statistics), step, statistics, gate=gate)
    loop.step.queues = lambda: False  # where nothing drafts, too
    lengths = Lengths(max_len_b=max_len, max_positions=max_len + 1, min_len=min_len)
    generator = ParallelGenerator([model], SYMBOLS, loop, statistics, lengths, sampling=sampling)
    found = [row[0] for each in samples for row in generator.generate([model], each)]
    return found, statistics, gate


def counted(statistics):
    """All counters but time."""
    return {**dataclasses.asdict(statistics), "seconds": None}


def assert_repeated(make, samples, mosts=(63,), **options):
    """The same hypotheses and counts as one by one, for each ``most`` of :func:`decode`.

    Near a short limit a row's iterations are single, so that none may have been skipped.

    Returns:
        the hypotheses of the last one.
    """
    single, expected, gate = decode(make, 0, samples, **options)
    assert gate.skipped == 0
    for most in mosts:
        repeated, found, gate = decode(make, most, samples, **options)
        assert counted(found) == counted(expected)
        for one, other in zip(repeated, single, strict=True):
            assert torch.equal(one["tokens"], other["tokens"]) and one["steps"] == other["steps"]
            torch.testing.assert_close(one["positional_scores"], other["positional_scores"])
        assert gate.skipped > 0 or options.get("max_len", 15) < 15
    return repeated


@pytest.mark.parametrize("make", DRAFTERS)
@pytest.mark.parametrize("lengths", [[5], [3, 6, 2]])
def test_the_same_as_one_by_one(make, lengths):
    samples = [tiny.sample(lengths, seed) for seed in range(8)]
    assert_repeated(make, samples, [1, 2, 63])


@pytest.mark.parametrize("make", ON_GPUS)
@pytest.mark.parametrize("lengths", [[5], [3, 6, 2], [4, 7, 1, 2, 6, 3, 3]])
@pytest.mark.parametrize("limits", [{}, {"min_len": 0}, {"min_len": 9}, {"max_len": 7}])
def test_the_same_without_the_host(make, lengths, limits):
    """Rows that have ended wait for others, and near its limit a row's iterations are single."""
    samples = [tiny.sample(lengths, seed) for seed in range(6)]
    repeated = assert_repeated(make, samples, [1, 2, 63], backend=GraphBackend(), **limits)
    options = {"min_len": limits.get("min_len", 1), "max_len_b": limits.get("max_len", 15)}
    expected = [one for each in samples for one in reference([MODELS[0]], each, **options)]
    assert_same(repeated, expected)


@pytest.mark.parametrize("make", ON_GPUS)
@pytest.mark.parametrize("rule", [TopBeta(3, 2.0), MinBlock(TopBeta(), 3, EOS)])
def test_other_rules_without_the_host(make, rule):
    samples = [tiny.sample([3, 6, 2], seed) for seed in range(8)]
    assert_repeated(make, samples, rule=rule, backend=GraphBackend())


def generator(models, max_len_b=15, **lengths):
    """Greedy decoding as on a GPU."""
    statistics = Statistics()
    verifier = Verifier([build_engine(models[0], backend=GraphBackend())], statistics)
    loop = DecodingLoop(None, VerifiedStep(verifier, TopBeta()), statistics)
    limits = Lengths(max_len_b=max_len_b, max_positions=max_len_b + 1, **lengths)
    return ParallelGenerator(models, SYMBOLS, loop, statistics, limits)


def test_an_interrupted_run_leaves_nothing_unread(monkeypatch):
    samples = [tiny.sample([5], seed) for seed in range(4)]
    ours = generator(MODELS[:1])
    expected = [ours.generate([MODELS[0]], each)[0] for each in samples]
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Tables, "pop", mock.Mock(side_effect=KeyboardInterrupt))
        ours.generate([MODELS[0]], samples[0])
    for sample, theirs in zip(samples, expected, strict=True):
        assert_same(ours.generate([MODELS[0]], sample)[0], theirs)


@pytest.mark.parametrize("make", [nobody, trained])
def test_nobody_waits_behind_an_end(monkeypatch, make):
    """An iteration too many is queued, and its outcome is not read."""
    queued, looked = [], []
    for name, calls in (("_queue", queued), ("_look", looked)):
        method = getattr(captured_iterations._Run, name)
        counted = lambda self, method=method, calls=calls: (calls.append(1), method(self))  # noqa: E731
        monkeypatch.setattr(captured_iterations._Run, name, counted)
    samples = [tiny.sample([40], seed) for seed in range(4)]
    decode(make, 63, samples, max_len=60, backend=GraphBackend())
    assert 1 <= len(queued) - len(looked) <= 4


@pytest.mark.parametrize("bos", [None, 5])
def test_more_rows_begin_where_fewer_continued(bos):
    """In tensors for six rows: five with a prefix, and then six, which may begin otherwise."""
    models, options = MODELS[:1], {"max_len_b": 15, "min_len": 6}
    ours = generator(models, **options)
    ours.generate(models, tiny.sample([5] * 5, 1), prefix_tokens=torch.full((5, 1), 7))
    for seed in range(5):
        sample = tiny.sample([5] * 6, seed)
        found = [row[0] for row in ours.generate(models, sample, bos_token=bos)]
        theirs = SequenceGenerator(models, SYMBOLS, beam_size=1, **options)
        assert_same(found, [row[0] for row in theirs.generate(models, sample, bos_token=bos)])


@pytest.mark.parametrize("lengths", [[5], [3, 6, 2, 9]])
def test_what_the_host_was_told_is_what_the_device_has(monkeypatch, lengths):
    """Tokens and scores come with the outcomes; rows that end need nothing of the device."""
    samples = [tiny.sample(lengths, seed) for seed in range(6)]
    told, _, _ = decode(trained, 3, samples, max_len=60, backend=GraphBackend())
    monkeypatch.setattr(Rows, "on_host", property(lambda self: False))
    read, _, _ = decode(trained, 3, samples, max_len=60, backend=GraphBackend())
    for one, other in zip(told, read, strict=True):
        assert torch.equal(one["tokens"], other["tokens"])
        assert torch.equal(one["positional_scores"], other["positional_scores"])
        assert one["tokens"].dtype == other["tokens"].dtype


@pytest.mark.parametrize("make", [trained, rounded, solver, heads, nobody])
def test_samples_are_the_same(make):
    """Noise belongs to positions, which rise within a call."""
    samples = [tiny.sample([3, 6, 2], seed) for seed in range(8)]
    drawn = Settings(temperature=1.3, seed=4)
    greedy, _, _ = decode(make, 0, samples)
    repeated = assert_repeated(make, samples, sampling=drawn)
    assert [one["tokens"].tolist() for one in repeated] != [
        one["tokens"].tolist() for one in greedy
    ]


def test_drafts_that_end_early():
    samples = [tiny.sample([5], seed) for seed in range(8)]
    assert_repeated(partial(trained, confidence=0.05), samples, verifier=MODELS[0])


@pytest.mark.parametrize("make", DRAFTERS)
@pytest.mark.parametrize("approximate", [False, True])
def test_certified(make, approximate):
    """How many positions are scored at once depends on each draft."""
    samples = [tiny.sample([5], seed) for seed in range(8)]
    for rule in (None, TopBeta(2, 5.0)):
        options = {"certified": True, "approximate_scores": approximate, "rule": rule}
        single, expected, _ = decode(make, 0, samples, **options)
        repeated, found, gate = decode(make, 63, samples, **options)
        assert gate.skipped > 0
        assert counted(found) == counted(expected) and found.certified > 0
        assert [one["tokens"].tolist() for one in repeated] == [
            one["tokens"].tolist() for one in single
        ]


@pytest.mark.parametrize(
    "make, backend",
    [(make, NativeBackend()) for make in (trained, rounded, solver, copies, nobody)]
    + [(make, GraphBackend()) for make in ON_GPUS],
)
def test_long_rows_make_room_in_tokens_caches_and_positions(make, backend):
    """More than the 128 tokens, 256 slots and 64 positions that there is room for at first."""
    samples = [tiny.sample([4], seed) for seed in range(2)]
    verifier = tiny.model(0, max_target_positions=700)
    options = {"min_len": 600, "max_len": 650, "verifier": verifier, "backend": backend}
    repeated = assert_repeated(make, samples, **options)
    assert all(len(one["tokens"]) > 600 for one in repeated)
    for sample, one in zip(samples, repeated, strict=True):
        assert_same([one], reference([verifier], sample, max_len_b=650, min_len=600))


def test_a_call_returns_to_python_in_time(monkeypatch):
    """Ctrl-C waits for the call; here each iteration takes longer than it may."""
    samples = [tiny.sample([5], seed) for seed in range(4)]
    single, expected, _ = decode(trained, 0, samples)
    monkeypatch.setattr(native_verification, "PAUSE", 0.0)
    repeated, found, gate = decode(trained, 63, samples)
    assert gate.skipped == 0 and counted(found) == counted(expected)
    assert [one["tokens"].tolist() for one in repeated] == [
        one["tokens"].tolist() for one in single
    ]


def test_nobody_repeats_who_has_to_look():
    """A history and a watcher are told each iteration."""
    samples = [tiny.sample([5], 3)]
    for name, value in (("keep_history", True), ("watcher", lambda *told: None)):
        statistics, gate = Statistics(), Asked(63)
        engine = build_engine(MODELS[0], backend=NativeBackend())
        step = VerifiedStep(Verifier([engine], statistics), TopBeta())
        loop = DecodingLoop(
            NATDrafter(chained_model(), K, backend=NativeBackend()), step, statistics, gate=gate
        )
        setattr(loop, name, value)
        lengths = Lengths(max_len_b=15, max_positions=64)
        generator = ParallelGenerator([MODELS[0]], SYMBOLS, loop, statistics, lengths)
        generator.generate([MODELS[0]], samples[0])
        assert gate.skipped == 0 and gate.asked == statistics.iterations
