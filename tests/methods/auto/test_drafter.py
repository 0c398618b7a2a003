"""One of several drafters: whichever drafts, the output is that of greedy decoding."""

import random
import weakref
from unittest.mock import Mock

import pytest
import torch

from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.drafter import Drafter
from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.state import Batch, Rows
from specdec_plugin.decoding.symbols import Symbols
from specdec_plugin.engine import GraphBackend
from specdec_plugin.methods.auto.drafter import OneOfDrafters
from specdec_plugin.methods.input_guided.drafter import InputGuidedDrafter
from specdec_plugin.methods.jacobi.drafter import JacobiDrafter
from specdec_plugin.methods.self_draft.captured_drafter import CapturedDrafter
from specdec_plugin.methods.self_draft.drafter import SelfDrafter
from specdec_plugin.methods.setup import Setup
from tests.support import methods as ways
from tests.support import tiny
from tests.support.compiled import needs_kernels

pytestmark = needs_kernels


class Wavering(FixedGate):
    """Changes its mind in each iteration, and now and then wants no draft."""

    def __init__(self, seed, arms):
        super().__init__()
        self._random, self._arms = random.Random(seed), arms

    def choose(self, rows, tokens, drafts=True):
        return self._random.randint(0, self._arms)

    def ahead(self):
        return self._random.choice([0, 3])


def generator(method="auto", **flags):
    return ways.generator(method, tiny.model(1, symbols=ways.SYMBOLS), **flags)


def auto(**flags):
    found = generator(**flags)
    assert isinstance(found.loop.drafter, OneOfDrafters)
    return found, found.loop.drafter


def decoded(ours, sample):
    rows = ours.generate([], sample)
    return [(row[0]["tokens"].tolist(), float(row[0]["score"])) for row in rows]


@pytest.mark.parametrize("trained", [None, "chain", "joint heads"])
@pytest.mark.parametrize("seed", range(6))
def test_drafters_may_change_in_each_iteration(seed, trained, monkeypatch):
    if trained in ways.DRAFTERS:
        monkeypatch.setitem(ways.DRAFTERS, "auto", ways.DRAFTERS[trained])
    elif trained is not None:
        monkeypatch.setitem(ways.DRAFTERS, "auto", lambda **more: ways.verifier(trained))
    found, drafter = auto(draft_rows=-1)
    assert len(drafter.drafters) == (3 if trained is None else 4)
    sample = tiny.sample([3, 9, 5, 1, 7][: 1 + seed % 5], seed)
    greedy = generator("greedy")
    found.loop.gate, found.loop.schedule = Wavering(seed, len(drafter.lengths)), None
    for ours, theirs in zip(decoded(found, sample), decoded(greedy, sample), strict=True):
        assert ours[0] == theirs[0]
        assert ours[1] == pytest.approx(theirs[1], abs=1e-4)


def test_on_a_device_its_drafts_follow_one_another_without_the_host(monkeypatch):
    queued, iterate = [], CapturedDrafter.iterate_captured

    def counting(self, *args):
        found = iterate(self, *args)
        queued.append(found is not None and found.iterations)
        return found

    monkeypatch.setattr(CapturedDrafter, "iterate_captured", counting)
    model, options = tiny.model(1, symbols=ways.SYMBOLS), {"max_len_b": 60, "min_len": 50}
    found = ways.generator("auto", model, GraphBackend(), options)
    drafter = found.loop.drafter
    assert isinstance(drafter, OneOfDrafters)
    found.loop.gate = FixedGate()
    sample = tiny.sample([3, 9, 5])
    greedy = ways.generator("greedy", model, options=options)
    expected = [row for row, _ in decoded(greedy, sample)]
    assert [row for row, _ in decoded(found, sample)] == expected
    assert max(queued) > 1 and drafter.drafted[-1] == sum(drafter.drafted) > 0


def test_each_length_of_each_drafter_is_a_length():
    _, drafter = auto()
    source, before, own = drafter.drafters
    assert isinstance(before, JacobiDrafter) and isinstance(source, InputGuidedDrafter)
    assert isinstance(own, SelfDrafter)
    assert len(drafter.lengths) == 2 + len(own.lengths)


def test_lookups_follow_one_of_several_matches_of_a_symbol():
    """In the source the nearest one, and of all that came before the last one."""
    _, drafter = auto()
    pad, end = ways.SYMBOLS.pad(), ways.SYMBOLS.eos()
    limits = Constraints(pad, ways.SYMBOLS.unk(), end, 0.0, 1, 20)
    batch = Batch({"src_tokens": torch.tensor([[4, 8, 4, 9, end]])}, [], end, limits)
    rows = Rows(batch)
    rows.append(torch.tensor([[7, 4]]), torch.zeros(1, 2), torch.tensor([2]))
    rows.sync_lengths([2])
    first = []
    for lookup in drafter.drafters[:2]:
        lookup.start(batch)
        first.append(int(lookup.propose(rows).tokens[0, 0]))
    assert first == [8, 9]


def test_the_last_drafter_drafts_where_nothing_is_measured():
    found, drafter = auto()
    assert found.loop.schedule is None
    decoded(found, tiny.sample([4, 6]))
    assert drafter.drafted[0] == drafter.drafted[1] == 0 < drafter.drafted[2]
    assert drafter.share(-1) == 1.0


def test_what_each_has_drafted_is_counted():
    found, drafter = auto()
    found.loop.gate = Wavering(3, len(drafter.lengths))
    for seed in range(4):
        decoded(found, tiny.sample([8, 9, 10], seed))
    assert min(drafter.drafted) > 0
    lengths = found.statistics.draft_lengths
    assert sum(drafter.drafted) == sum(length * count for length, count in lengths.items())


def test_lookup_learns_from_what_others_drafted():
    found, drafter = auto()
    _, before, _ = drafter.drafters
    hypotheses = decoded(found, tiny.sample([4, 6]))
    assert drafter.drafted[0] == 0
    waiting = sorted(tokens.tolist() for tokens in before._waiting)
    assert waiting == sorted(tokens for tokens, _ in hypotheses)


def test_without_common_symbols_there_is_no_source_to_follow(monkeypatch):
    symbols = Symbols.of(tiny.dictionary(0), ways.SYMBOLS, ways.SYMBOLS.eos())
    monkeypatch.setattr(Setup, "symbols", lambda setup: symbols)
    before, own = generator().loop.drafter.drafters
    assert isinstance(before, JacobiDrafter) and isinstance(own, SelfDrafter)


def test_speech_has_no_source_to_follow(monkeypatch):
    monkeypatch.setattr(Setup, "dictionaries", (None, ways.SYMBOLS))
    assert isinstance(generator().loop.drafter, SelfDrafter)


class Recorder(Drafter):
    """Notes what it is told."""

    length = 1

    def __init__(self, late):
        self.late, self.told = late, []

    def start(self, batch):
        self.told.append("start")

    def stop(self):
        self.told.append("stop")

    def select(self, rows):
        self.told.append("select")

    def accept(self, rows, outcome):
        self.told.append("accept")

    def forget(self):
        self.told.append("forget")

    def too_late(self, batch, rows):
        return self.late

    def propose(self, rows):
        return rows.empty_draft()


@pytest.mark.parametrize("late", [(True, True), (True, False), (False, True), (False, False)])
def test_it_is_too_late_where_it_is_for_all(late):
    drafter = OneOfDrafters([Recorder(each) for each in late])
    assert drafter.too_late(None, None) == all(late)


def test_its_longest_drafts_are_as_promising_as_those_of_the_last():
    first, last = Recorder(False), Recorder(False)
    first.promising, last.promising = 1, 3
    assert OneOfDrafters([first, last]).promising == 3


def test_who_drafts_no_more_lets_go_of_the_batch():
    first, last = Recorder(False), Recorder(False)
    drafter = OneOfDrafters([first, last])
    rows = Mock()
    drafter.start(Mock())
    for drafter.length in (1, 1, 0, 1):
        drafter.propose(rows)
    assert last.told == ["start", "stop", "start"] and first.told == ["start", "stop"]
    drafter.stop()
    assert last.told[-1] == first.told[-1] == "stop"


class Held:
    """Stands for a batch."""


def test_when_it_stops_it_lets_go_of_the_batch():
    drafter, batch = OneOfDrafters([Recorder(False), Recorder(False)]), Held()
    drafter.start(batch)
    drafter.propose(Mock())
    held = weakref.ref(batch)
    del batch
    assert held() is not None
    drafter.stop()
    assert held() is None


def test_a_drafter_has_the_length_that_was_chosen():
    first, last = Recorder(False), Recorder(False)
    last.lengths = (2, 4)
    drafter, seen = OneOfDrafters([first, last]), []
    drafter.start(Mock())
    for drafter.length in range(3):
        drafter.propose(Mock())
        seen.append((first.length, last.length))
    assert seen == [(1, 1), (1, 2), (1, 4)]


def test_each_costs_its_share_of_the_drafted_tokens():
    both = [Mock(wraps=Recorder(False), length=1, lengths=(), needs=()) for _ in range(2)]
    for each, cost in zip(both, (100.0, 10.0), strict=True):
        each.cost.return_value = cost
    drafter = OneOfDrafters(both)
    drafter.drafted = [1, 3]
    assert drafter.cost("work") == 0.25 * 100 + 0.75 * 10
    for each in both:
        each.cost.assert_called_once_with("work", alone=False)


def test_all_forget():
    both = [Recorder(False), Recorder(False)]
    OneOfDrafters(both).forget()
    assert [each.told for each in both] == [["forget"]] * 2


def test_who_drafts_is_told_and_who_begins_gets_the_rows_that_are_left():
    first, last = Recorder(False), Recorder(False)
    drafter, batch, rows = OneOfDrafters([first, last]), Mock(), Mock()
    drafter.start(batch)
    drafter.propose(rows)
    drafter.accept(rows, Mock(drafted=[2, 1]))
    for left in ([0, 2, 3], [1, 2]):
        drafter.select(torch.tensor(left))
    assert last.told == ["start", "accept", "select", "select"] and first.told == []
    drafter.length = 0
    drafter.propose(rows)
    (left,) = batch.select.call_args.args
    assert left.tolist() == [2, 3] and first.told == ["start"]


def test_a_new_batch_begins_with_all_of_its_rows():
    last = Recorder(False)
    drafter, batches = OneOfDrafters([Recorder(False), last]), [Mock(), Mock()]
    for batch in batches:
        drafter.start(batch)
        drafter.propose(Mock())
        drafter.select(torch.tensor([0]))
    assert last.told == ["start", "select"] * 2
    assert not any(batch.select.called for batch in batches)


def test_what_was_drafted_is_forgotten_with_the_batches():
    found, drafter = auto()
    decoded(found, tiny.sample([4, 6]))
    assert sum(drafter.drafted) > 0
    found.loop.forget()
    assert sum(drafter.drafted) == 0
