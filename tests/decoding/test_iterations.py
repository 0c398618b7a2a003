"""Iterations of a single row in one call of the kernels, against the same one by one."""

import dataclasses

import pytest
import torch

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.guard import FixedGate
from specdec_plugin.decoding.loop import DecodingLoop, VerifiedStep
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import NativeBackend, build_engine
from specdec_plugin.methods.block_nat import drafter as drafter_module
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from tests.support import tiny
from tests.support.drafters import K, chained_model
from tests.support.search import MODELS, SYMBOLS, assert_same, reference


class Asked(FixedGate):
    """Lets at most so many iterations follow without a question."""

    def __init__(self, most):
        super().__init__()
        self.most, self.asked, self.skipped = most, 0, 0

    def way(self, rows, tokens):
        self.asked += 1
        return super().way(rows, tokens)

    def ahead(self):
        return self.most

    def skip(self, iterations):
        assert 0 <= iterations <= self.most
        self.skipped += iterations


def decode(
    most, samples, confidence=0.0, min_len=1, max_len=15, verifier=MODELS[0], rule=None, **certified
):
    """Hypotheses, what was counted, and the gate."""
    statistics, gate = Statistics(), Asked(most)
    engine = build_engine(verifier, backend=NativeBackend())
    step = VerifiedStep(Verifier([engine], statistics, **certified), rule or TopBeta())
    drafter = NATDrafter(chained_model(), K, confidence=confidence, backend=NativeBackend())
    loop = DecodingLoop(drafter, step, statistics, gate=gate)
    lengths = Lengths(max_len_b=max_len, max_positions=max_len + 1, min_len=min_len)
    generator = ParallelGenerator([verifier], SYMBOLS, loop, statistics, lengths)
    found = [row[0] for each in samples for row in generator.generate([verifier], each)]
    return found, statistics, gate


def counted(statistics):
    """All counters but time."""
    return {**dataclasses.asdict(statistics), "seconds": None}


@pytest.mark.parametrize("most", [1, 2, 63])
@pytest.mark.parametrize("confidence", [0.0, 0.05])
@pytest.mark.parametrize("lengths", [[5], [3, 6, 2]])
def test_the_same_as_one_by_one(most, confidence, lengths):
    samples = [tiny.sample(lengths, seed) for seed in range(8)]
    single, expected, gate = decode(0, samples, confidence)
    assert gate.skipped == 0
    repeated, found, gate = decode(most, samples, confidence)
    assert gate.skipped > 0
    assert counted(found) == counted(expected)
    for one, other in zip(repeated, single):
        assert torch.equal(one["tokens"], other["tokens"]) and one["steps"] == other["steps"]
        torch.testing.assert_close(one["positional_scores"], other["positional_scores"])


@pytest.mark.parametrize("approximate", [False, True])
def test_certified(approximate):
    """A small vocabulary is scored in float32 behind drafts, so that no look at them is needed."""
    samples = [tiny.sample([5], seed) for seed in range(8)]
    for rule in (None, TopBeta(2, 5.0)):
        options = {"certified": True, "approximate_scores": approximate, "rule": rule}
        single, expected, _ = decode(0, samples, **options)
        repeated, found, gate = decode(63, samples, **options)
        assert (gate.skipped > 0) != approximate
        assert counted(found)["kept_lengths"] == counted(expected)["kept_lengths"]
        assert [one["tokens"].tolist() for one in repeated] == [
            one["tokens"].tolist() for one in single
        ]


def test_long_rows_make_room_in_tokens_caches_and_positions():
    """More than the 128 tokens, 256 slots and 64 positions that there is room for at first."""
    samples = [tiny.sample([4], seed) for seed in range(2)]
    verifier = tiny.model(0, max_target_positions=700)
    options = {"min_len": 600, "max_len": 650, "verifier": verifier}
    single, expected, _ = decode(0, samples, **options)
    repeated, found, gate = decode(63, samples, **options)
    assert gate.skipped > 0 and counted(found) == counted(expected)
    assert [one["tokens"].tolist() for one in repeated] == [
        one["tokens"].tolist() for one in single
    ]
    assert all(len(one["tokens"]) > 600 for one in repeated)
    for sample, one in zip(samples, repeated):
        assert_same([one], reference([verifier], sample, max_len_b=650, min_len=600))


def test_a_call_returns_to_python_in_time(monkeypatch):
    """Ctrl-C waits for the call; here each iteration takes longer than it may."""
    samples = [tiny.sample([5], seed) for seed in range(4)]
    single, expected, _ = decode(0, samples)
    monkeypatch.setattr(drafter_module, "PAUSE", 0.0)
    repeated, found, gate = decode(63, samples)
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
