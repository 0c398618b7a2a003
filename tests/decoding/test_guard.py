"""The guard finds the faster arm, notices changes, and loses little by trying."""

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding import guard as guard_module
from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.guard import GRACE, Guard
from specdec_plugin.decoding.trials import SHARE

#: Costs and gains of three arms, and the lengths of sentences.
any_world = given(
    cost=st.lists(st.floats(0.5, 5), min_size=3, max_size=3),
    brings=st.lists(st.integers(1, 6), min_size=2, max_size=2),
    lengths=st.lists(st.integers(1, 150), min_size=1, max_size=30),
)


class World:
    """A machine and a text: what iterations cost and bring, on a clock of its own.

    Args:
        cost: seconds of an iteration, by arm.
        brings: tokens a row that it adds, by arm.
        dear: seconds of a question, where one iteration follows and where more do.
    """

    def __init__(self, cost, brings=(1, 1), lengths=1, promising=1, patient=False, dear=(0.0, 0.0)):
        self.dear = dear
        self.cost, self.brings = list(cost), list(brings)
        self.now, self.tokens, self.lost = 0.0, 0, 0.0
        self.arms, self.held_up = [], None
        self.unusual = 0
        self.between = 1.0  # what others do between batches
        self.guard = Guard(
            promising, lengths, lambda: self.now, lambda: self.unusual, patient=patient
        )
        self.questions = 0

    def pace(self, arm, rows=1):
        return self.cost[arm] / (self.brings[arm] * rows)

    def decode(self, length, rows=1, ahead=False, late=math.inf):
        """A batch whose rows all have so many tokens.

        Args:
            ahead: ask no more than necessary.
            late: tokens from which on the first draft comes too late.
        """
        self.guard.begin()
        done = unasked = drafted = 0
        while done < length:
            if unasked > 0:
                unasked -= 1
                self.guard.skip(1)
            else:
                self.questions += 1
                arm = self.guard.choose(rows, self.tokens, drafted > 0 or done < late)
                arm = min(arm, len(self.cost) - 1)
                drafted += arm > 0
                unasked = self.guard.ahead() if ahead else 0
                self.now += self.dear[unasked > 0]
            self.arms.append(arm)
            self.now += self.cost[arm] + 1000 * (len(self.arms) == self.held_up)
            added = min(self.brings[arm], length - done)
            done += added
            self.tokens += rows * added
            best = min(self.pace(each, rows) for each in range(len(self.cost)))
            self.lost += self.cost[arm] - rows * added * best
        self.guard.end(self.tokens)
        self.now += self.between

    def rest_or_decode(self, length):
        """As the loop does: a batch is decoded without a question while the guard rests."""
        if not self.guard.rests(1):
            self.decode(length)
            return False
        seconds = length * self.cost[0]
        self.now += seconds
        self.tokens += length
        self.arms += [0] * length
        self.guard.undrafted(1, length, seconds)
        return True

    def share(self, arm, last):
        """How much of the last iterations took this arm."""
        return self.arms[-last:].count(arm) / last


@pytest.mark.parametrize("patient", [False, True])
def test_an_interval_with_a_compilation_tells_nothing(patient):
    world = World((1.0, 0.5), patient=patient)
    for number in range(200):
        world.decode(20, ahead=True)
        if number % 2:
            world.unusual += 1
            world.guard.begin()
            world.now += 1000
    assert world.share(1, 1000) > 0.9


@settings(max_examples=50)
@given(cost=st.floats(0.5, 5), brings=st.integers(1, 6), length=st.integers(10, 300))
def test_patient_trials_lose_little(cost, brings, length):
    """The iterations of grace, and those of one look at an arm that turns out slower."""
    world = World((1.0, cost), (1, brings), patient=True)
    while len(world.arms) < 6000:
        world.decode(length, ahead=True)
    busy = sum(world.cost[arm] for arm in world.arms)
    unsettled = max(world.pace(0) - world.pace(1), 0) * 4 * length  # before the first trial
    cut = cost * len(world.arms) * brings / length if world.pace(1) < world.pace(0) else 0
    assert world.lost <= SHARE * busy + GRACE + 64 + max(cost, 1) * 3 + unsettled + cut


@pytest.mark.parametrize("rows", [1, 32])
@pytest.mark.parametrize("cost, brings", [(15.8, 13), (2.4, 5), (2.4, 1), (0.7, 1)])
def test_a_device_that_works_ahead_is_measured_while_it_does(rows, cost, brings):
    """A single iteration waits for it, and takes many times as long. Costs are those of a GPU."""
    world = World((1.0, cost), (1, brings), promising=64, patient=True, dear=(5.0, 3.0))
    for _ in range(100):
        world.decode(40, rows, ahead=True)
    faster = int(cost < brings)
    assert world.share(faster, 500) > 0.9
    alone = (40 + 3.0) * 100 if not faster else (40 * cost / brings + 3.0) * 100
    assert world.now - 100 < 1.05 * alone


@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize("cost, faster", [((1.0, 2.0), 0), ((1.0, 1.2), 1)])
def test_where_questions_are_dear_one_is_asked_a_sentence(cost, faster, rows):
    """And the arm that adds a token in less time is found all the same."""
    world = World(cost, (1, 1.5), promising=64, patient=True)
    for _ in range(300):
        world.decode(60, rows, ahead=True)
    assert world.share(faster, 5000) > 0.95
    asked = world.questions
    for _ in range(100):
        world.decode(60, rows, ahead=True)
    assert world.questions - asked <= 100 + 4 * 8  # a trial of many rows is looked at often
    assert world.lost < 0.02 * len(world.arms)


@settings(max_examples=50)
@any_world
def test_iterations_without_a_question_are_measured_alike(cost, brings, lengths):
    asked, skipped = (World(cost, (1, *brings), lengths=2) for _ in range(2))
    for length in lengths:
        asked.decode(length)
        skipped.decode(length, ahead=True)
    assert skipped.arms == asked.arms
    assert skipped.guard.spent == pytest.approx(asked.guard.spent)
    assert skipped.guard.lost == pytest.approx(asked.guard.lost)


@pytest.mark.parametrize("patient", [False, True])
@settings(max_examples=30)
@any_world
def test_a_trial_is_looked_at_before_it_has_lost_what_it_may(patient, cost, brings, lengths):
    world = World(cost, (1, *brings), lengths=2, patient=patient)
    plain = world.guard._until_look

    def until_look(bucket, trial):
        found, settled = plain(bucket, trial), bucket.arms[bucket.settled]
        known = bucket.arms[trial.arm] if patient else trial  # before it, a device was waited for
        if found > (guard_module._SECOND if patient else 1):
            loss = known.seconds - known.tokens * settled.pace
            foreseen = guard_module._loss(trial, settled) + found * loss / known.iterations
            assert loss <= 0 or foreseen <= world.guard._allowance(bucket) + 1e-6
        return found

    world.guard._until_look = until_look
    for length in lengths:
        world.decode(4 * length, ahead=True)


def test_a_drafter_that_stopped_does_not_start_again_at_once():
    """It would read the source again. A trial of no drafts is shorter, where it loses little."""
    world = World(cost=(1, 1.9), brings=(1, 2), promising=None)
    stopped = []
    for _ in range(60):
        before = len(world.arms)
        world.decode(400, rows=8)
        runs = [(arm, len([*each])) for arm, each in itertools.groupby(world.arms[before:])]
        stopped += [length for arm, length in runs[1:-1] if arm == 0]
    assert stopped and min(stopped) >= guard_module._LONG


@settings(max_examples=30)
@any_world
def test_decisions_do_not_depend_on_the_unit_of_time(cost, brings, lengths):
    """The same model may be a thousand times as fast."""
    one, other = World(cost, (1, *brings), lengths=2), World(cost, (1, *brings), lengths=2)
    other.cost, other.between = [each / 1024 for each in cost], 1 / 1024
    for length in lengths:
        one.decode(length)
        other.decode(length)
    assert one.arms == other.arms


@settings(max_examples=50)
@any_world
def test_while_it_rests_no_draft_is_tried(cost, brings, lengths):
    world = World(cost, (1, *brings), lengths=2)
    for length in lengths:
        rests, before = world.guard.rests(1), len(world.arms)
        world.decode(length)
        assert not rests or world.arms[before] == 0


def test_it_rests_where_drafts_lose_and_notices_that_they_pay():
    world = World(cost=(1, 2), brings=(1, 1))
    rested = [world.rest_or_decode(20) for _ in range(1000)]
    assert rested.count(True) > 900
    world.brings = [1, 4]
    for _ in range(5000):
        world.rest_or_decode(20)
    assert world.share(1, 1000) > 0.9
    assert not world.guard.rests(1)


def test_it_does_not_rest_before_fewer_rows_were_tried():
    world = World(cost=(1, 2), brings=(1, 1), promising=8)
    for _ in range(50):
        world.decode(40, rows=8)
    assert not world.guard.rests(8)
    for rows in (1, 2, 4):
        world.decode(40, rows)
    assert world.guard.rests(1) and not world.guard.rests(16)


@pytest.mark.parametrize("rows", [2, 8])
def test_it_does_not_rest_for_ever_about_several_rows(rows):
    world = World(cost=(1, 2), brings=(1, 1), promising=8)
    while not world.guard.rests(rows):
        for each in range(1, rows + 1):
            world.decode(40, each)
    for _ in range(10000):
        world.guard.undrafted(rows, 20 * rows, 20.0)
        if not world.guard.rests(rows):
            break
    assert not world.guard.rests(rows)


def test_a_batch_without_questions_counts_for_each_number_of_rows_alike():
    guard = Guard()
    guard.undrafted(8, 160, 20.0)
    assert guard.spent == 20 and [guard._find(rows).spent for rows in (1, 2, 4, 8)] == [5] * 4
    guard.undrafted(1, 10, 4.0)
    assert guard._find(1).spent == 9 and guard._find(1).arms[0].pace == 0.4


def test_the_first_iteration_of_all_is_not_measured():
    world = World(cost=(1, 2))
    world.held_up = 1
    world.decode(20)
    assert world.guard.spent < 40


def test_lengths_that_are_equally_fast_are_not_exchanged():
    world = World(cost=(1, 0.5, 0.5), brings=(1, 1, 1), lengths=2)
    for _ in range(400):
        world.decode(40)
    assert max(world.share(1, 8000), world.share(2, 8000)) > 0.9


def test_it_drafts_where_that_is_faster():
    world = World(cost=(1, 2), brings=(1, 4))
    for _ in range(50):
        world.decode(20)
    assert world.share(1, 100) > 0.9
    without, drafted = world.guard.paces()
    assert (without, drafted) == (pytest.approx(1), pytest.approx(2, rel=0.1))


def test_where_drafts_lose_the_most_unlike_way_is_tried_next():
    world = World(cost=(1, 1.1, 2, 2, 2), brings=(1, 2, 1, 1, 1), lengths=4)
    for _ in range(60):
        world.decode(20)
    tried = list(dict.fromkeys(arm for arm in world.arms if arm))
    assert tried[:2] == [4, 1]
    assert world.share(1, 100) > 0.9


def test_it_does_not_where_that_is_slower():
    world = World(cost=(1, 2), brings=(1, 1))
    for _ in range(200):
        world.decode(20)
    assert world.share(1, 1000) < 0.01
    assert 0 < world.arms.count(1) < 60


def test_it_tries_drafts_early():
    world = World(cost=(1, 2))
    world.decode(20)
    assert 1 in world.arms[:6]


def test_it_waits_with_many_rows_until_a_trial_costs_little():
    world = World(cost=(1, 2), brings=(1, 1))
    world.decode(400, rows=64)
    assert 1 not in world.arms
    for _ in range(40):
        world.decode(400, rows=64)
    assert 1 in world.arms


def test_what_few_rows_told_is_used_for_more():
    """Two rows more than pay, so four are tried at once."""
    world = World(cost=(1, 1.1), brings=(1, 3), promising=1)
    for rows in (1, 2, 4):
        world.decode(100, rows)
    assert world.share(1, 20) > 0.5


def test_it_notices_that_the_text_changed():
    world = World(cost=(1, 2), brings=(1, 1))
    for _ in range(100):
        world.decode(20)
    assert world.share(1, 100) < 0.1
    world.brings[1] = 8
    for _ in range(400):
        world.decode(20)
    assert world.share(1, 100) > 0.9
    world.brings[1] = 1
    for _ in range(100):
        world.decode(20)
    assert world.share(1, 100) < 0.1


def test_it_notices_that_the_machine_changed():
    world = World(cost=(1, 2), brings=(1, 4))
    for _ in range(100):
        world.decode(40)
    world.cost[1] = 6
    for _ in range(100):
        world.decode(40)
    assert world.share(1, 100) < 0.1


def test_far_longer_sentences_are_tried_soon():
    """A trial with short ones has lost all that may be lost."""
    for longer, tried in ((9, False), (10, True)):
        world = World(cost=(1, 8))
        world.guard.see(5)
        for _ in range(20):
            world.decode(4)
        assert 0 < world.arms.count(1) < 8
        world.cost[1], world.brings = 2, [1, 8]
        world.guard.see(longer)
        world.decode(60)
        assert (1 in world.arms[-20:]) == tried


def test_far_longer_sentences_end_the_trial_of_the_shorter_ones():
    for length in range(1, 200):  # of some, a trial has all its iterations when it ends
        world = World(cost=(1, 2), brings=(1, 4))
        world.guard.see(5)
        world.decode(length)
        world.guard.see(10)
        for _ in range(20):
            world.decode(200)
        assert world.share(1, last=50) == 1


def test_trials_that_lose_become_rarer():
    world = World(cost=(1, 1.5), brings=(1, 1))
    for _ in range(6000):
        world.decode(20)
    early, late = world.arms[:40000].count(1), world.arms[-40000:].count(1)
    assert 0 < late < early


def test_drafts_end_at_once_when_they_lose_too_much():
    world = World(cost=(1, 50))
    for _ in range(200):
        world.decode(20)
    assert world.arms.count(1) <= 2


@pytest.mark.parametrize("held_up", range(4, 30, 5))
def test_an_iteration_that_other_work_holds_up_decides_nothing(held_up):
    world = World(cost=(1, 2), brings=(1, 4))
    world.held_up = held_up
    for _ in range(150):
        world.decode(30)
    assert world.share(1, 200) > 0.8


def test_the_best_length_is_found():
    world = World(cost=(1, 1.5, 2, 4, 8), brings=(1, 2, 4, 6, 7), lengths=4)
    for _ in range(400):
        world.decode(30)
    assert world.share(2, 200) > 0.8


def test_the_clock_is_read_rarely():
    """Where it is settled what to do, and in a trial once an iteration."""
    world, read = World(cost=(1, 2)), []
    world.guard._clock = lambda: read.append(world.now) or world.now
    for _ in range(20):
        world.decode(400)
    assert len(read) < len(world.arms) / 20


def test_each_number_of_rows_is_measured_for_itself():
    world = World(cost=(1, 1), brings=(1, 2), promising=None)
    for _ in range(30):
        world.cost[1] = 1
        world.decode(60, rows=1)
        world.cost[1] = 9
        world.decode(60, rows=64)
    assert world.share(1, 60) == 0
    world.cost[1] = 1
    world.decode(60, rows=1)
    assert world.share(1, 20) > 0.9


def test_a_trial_that_was_never_measured_ends_with_the_budget():
    """Its only iteration was unusual. Then drafts for more rows lose all that trials may lose."""
    world = World(cost=(1, 1), brings=(1, 2), promising=None)
    world.guard.begin()
    while world.guard.choose(1, world.tokens) == 0:
        world.now, world.tokens = world.now + 1, world.tokens + 1
    world.now, world.tokens, world.unusual = world.now + 9, world.tokens + 2, 1
    world.guard.end(world.tokens)
    world.cost = [50, 5000]
    world.decode(60, rows=64)
    assert world.guard.lost > SHARE * world.guard.spent + GRACE
    world.cost = [1, 1]
    world.decode(60)
    assert world.share(0, 60) == 1
    for _ in range(4000):
        world.decode(60)
    assert world.share(1, 60) == 1


def test_what_was_measured_can_be_forgotten():
    world = World(cost=(1, 2), brings=(1, 4))
    for _ in range(50):
        world.decode(20)
    world.guard.forget()
    assert world.guard.paces() is None and world.guard.spent == 0


@settings(max_examples=200)
@given(
    cost=st.floats(0.2, 40),
    brings=st.integers(1, 12),
    length=st.integers(1, 200),
    rows=st.sampled_from([1, 2, 8, 64]),
)
def test_trials_lose_little(cost, brings, length, rows):
    """The share, the iterations of grace, and what an iteration or a batch goes beyond them."""
    world = World(cost=(1, cost), brings=(1, brings), promising=None)
    while len(world.arms) < 4000:
        world.decode(length, rows)
    busy = sum(world.cost[arm] for arm in world.arms)
    # Before a draft is tried there are four iterations without; a draft may be cut by an end.
    cut = 0 if world.pace(1) > world.pace(0) else cost * len(world.arms) / max(1, length / brings)
    least = min(world.pace(0), world.pace(1)) * 4
    looks = max(cost, 1) + guard_module._LONG
    assert world.lost <= SHARE * busy + GRACE + looks + 4 - min(4, least) + cut


class Barred(World):
    """A world in which there may be no drafts now and then."""

    def ask(self, drafts, rows=1, iterations=1):
        """Some answers of the guard, and the iterations that follow each; the arms."""
        begin = len(self.arms)
        for _ in range(iterations):
            arm = self.guard.choose(rows, self.tokens, drafts)
            ahead = self.guard.ahead()
            self.guard.skip(ahead)
            self.arms += [arm] * (1 + ahead)
            self.now += self.cost[arm] * (1 + ahead)
            self.tokens += rows * self.brings[arm] * (1 + ahead)
        return self.arms[begin:]


@pytest.mark.parametrize("patient", [False, True])
def test_where_there_may_be_no_drafts_only_their_absence_is_measured(patient):
    """An iteration counts for what it was, also where a trial waits or drafts are settled."""
    world = Barred((1.0, 0.5), (1, 4), patient=patient)
    for drafts in (False, True, True, False, True, False, True, True, True, False):
        world.guard.begin()
        arms = [world.ask(drafts, iterations=3), world.ask(False), world.ask(drafts)]
        world.guard.end(world.tokens)
        assert set(arms[1]) == {0} and (drafts or set(arms[0] + arms[2]) == {0})
        paces = world.guard.paces()
        assert paces is None or paces == (pytest.approx(1.0), pytest.approx(8.0))
    assert world.arms.count(1) > 0 and paces is not None


def test_an_answer_holds_until_there_may_be_no_drafts():
    world = Barred((1.0, 0.25), (1, 4))
    for _ in range(20):
        world.decode(60)
    world.guard.begin()
    assert world.guard.choose(1, world.tokens) == 1 and world.guard.ahead() > 0
    assert world.guard.choose(1, world.tokens, drafts=False) == 0


@pytest.mark.parametrize("patient", [False, True])
def test_it_is_asked_again_rarely_while_there_may_be_no_drafts(patient):
    guard = Guard(patient=patient)
    assert guard.choose(1, 0, drafts=False) == 0
    assert 1 + guard.ahead() == (guard_module._PATIENT if patient else guard_module._LONG)


def test_a_trial_does_not_wait_for_rows_that_may_have_no_drafts():
    """Where the last rows of batches are always too many tokens long, the guard comes to rest."""
    world = Barred((1.0, 8.0), (1, 1), promising=64)
    for _ in range(40):
        world.guard.begin()
        world.ask(True, 8, 40)
        for rows in (4, 2, 1):
            assert set(world.ask(False, rows, 3)) == {0}
        world.guard.end(world.tokens)
    assert world.guard.rests(8) and world.guard._find(1).arms[0].iterations > 0
    # A sentence alone begins without a token: there may be drafts.
    assert not world.guard.rests(1)
    world.guard.begin()
    world.ask(True, 2, 3)
    assert not world.guard.rests(8)


def test_a_trial_ends_where_there_may_be_no_drafts():
    """Else iterations without drafts would count for it."""
    world = Barred((1.0, 2.0), (1, 3))
    world.guard.begin()
    while 1 not in world.ask(True):
        pass
    assert world.guard._find(1).trial is not None
    world.ask(False, 2)
    assert world.guard._find(1).trial is not None  # another number of rows
    world.ask(False)
    assert world.guard._find(1).trial is None


@pytest.mark.parametrize("patient", [False, True])
@pytest.mark.parametrize("length", [8, 20, 40, 100])
def test_drafts_that_pay_are_soon_chosen_again(length, patient):
    """Where a sentence that began without drafts may have none later, as a drafter decides."""
    world = World((1.0, 3.0), (1, 4), patient=patient)
    for _ in range(400):
        world.decode(length, ahead=True, late=length // 3)
    drafted = world.arms.count(1) * world.brings[1]
    assert drafted > 0.9 * world.tokens


@pytest.mark.parametrize("patient", [False, True])
def test_the_last_rows_of_batches_count_for_no_trial_of_a_sentence(patient):
    """Nobody would judge it there, and what it lost would forbid all trials for long."""
    world = Barred((1.0, 3.0), (1, 4), promising=64, patient=patient)
    bucket = world.guard._find(1)
    while bucket.trial is None or bucket.trial.arm > 0 or bucket.settled == 0:
        world.decode(40, ahead=True, late=20)
    for _ in range(100):
        world.guard.begin()
        world.ask(False, 8, 2)
        assert set(world.ask(False)) == {0}
        world.guard.end(world.tokens)
    world.decode(40, ahead=True, late=20)
    assert world.guard.lost < SHARE * world.guard.spent + 2 * GRACE


def test_a_fixed_gate_counts_rows():
    gate = FixedGate(2)
    assert gate.choose(1, 0, drafts=False) == 0
    assert [bool(gate.choose(rows, 0)) for rows in (1, 2, 3)] == [True, True, False]
    assert FixedGate().choose(1000, 0) > 0 and gate.paces() is None
