"""Whether a batch is a queue or drafted for: the faster arm is found, and trials stay cheap."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.guard import Guard
from specdec_plugin.decoding.schedule import _MEMORY, _RECALLED, GRACE, SLICES, Schedule, _Arm
from specdec_plugin.decoding.trials import SHARE

TOKENS = 20


class Run:
    """Decodes batches of one size; the seconds of a sentence are given by arm."""

    def __init__(self, size, queue, drafted):
        self.schedule = Schedule(FixedGate())
        self.size, self.seconds = size, {0: queue, **drafted}
        self.arms, self.total, self.sentences, self.records = [], 0.0, 0, 0

    def batch(self):
        left = self.size
        while left:
            slice_ = self.schedule.next(self.size, left)
            done = min(slice_ or left, left)
            spent = self.seconds[slice_] * done
            if self.schedule.measures:
                self.schedule.record(slice_, self.size, done, done * TOKENS, spent)
                self.records += 1
            self.arms.append(slice_)
            self.total += spent
            self.sentences += done
            left -= done

    def go(self, batches):
        for _ in range(batches):
            self.batch()
        return self


@pytest.mark.parametrize("seconds", [1.0, 0.002])
def test_a_queue_is_measured_first_and_drafts_then(seconds):
    assert Run(1, seconds, {1: 2 * seconds}).go(2).arms == [0, 1]


@pytest.mark.parametrize(("drafted", "settled"), [(0.5, 1), (2.0, 0)])
def test_the_faster_way_is_settled_for_single_sentences(drafted, settled):
    arms = Run(1, 1.0, {1: drafted}).go(200).arms
    assert arms[100:].count(settled) >= 95


@pytest.mark.parametrize(
    ("drafted", "least", "most"), [(0.95, 590, 600), (0.98, 20, 80), (1.02, 20, 80)]
)
def test_drafts_that_gain_or_lose_little_are_tried_now_and_then(drafted, least, most):
    counts = Counter(Run(1, 1.0, {1: drafted}).go(1000).arms[400:])
    assert least <= counts[1] <= most


@pytest.mark.parametrize("explored", [True, False])
def test_a_first_trial_is_longer_while_the_gate_has_drafters_to_measure(explored):
    run = Run(1, 1.0, {1: 1.0})
    run.schedule.gate.explored = lambda rows: explored
    run.go(60)
    assert run.arms.count(1) == (12 if explored else 40)


def test_a_gate_has_explored_what_it_measured_for_so_many_rows():
    clock = iter(range(10**6)).__next__
    guard, seen = Guard(lengths=2, clock=clock), set()
    guard.begin()
    for tokens in range(0, 4000, 2):
        if guard.explored(1):
            break
        seen.add(guard.choose(1, tokens))
    assert seen == {0, 1, 2} and not guard.explored(4)


@pytest.mark.parametrize(("drafted", "settled"), [(0.5, 1), (2.0, 0)])
def test_few_sentences_of_a_small_model_are_measured(drafted, settled):
    run = Run(1, 0.002, {1: 0.002 * drafted}).go(400)
    assert run.arms[200:].count(settled) >= 195
    assert run.records < 80
    while not run.schedule.measures:
        run.go(1)
    assert run.schedule.spent == pytest.approx(run.total, rel=0.05)


def rested(run):
    """The run, behind the first sentence of many that are not measured."""
    for resting in (True, False):
        while run.schedule.measures != resting:
            run.go(1)
    return run


def test_a_resting_schedule_notices_far_longer_sentences():
    run = Run(1, 0.002, {1: 0.002 * 2})
    run.schedule.see(4)
    rested(run.go(300)).schedule.see(9)
    run.go(1)
    assert run.schedule.measures


def test_a_resting_schedule_measures_batches_of_another_size():
    run = rested(Run(1, 0.002, {1: 0.002 * 2}).go(300))
    run.schedule.next(64, 64)
    assert run.schedule.measures


def test_a_large_batch_is_drafted_for_in_slices_where_that_is_faster():
    run = Run(64, 1.0, {1: 3.0, 8: 0.25}).go(400)
    assert run.arms[-32:] == [8] * 32
    assert run.sentences == 400 * 64
    run.size = 4
    assert 8 not in run.go(50).arms[-50:]


def test_it_notices_that_the_text_has_changed():
    run = Run(1, 1.0, {1: 2.0}).go(500)
    run.seconds[1] = 0.2
    run.go(5000)
    assert run.arms[-100:].count(1) >= 95
    run.seconds[1] = 5.0
    run.go(2000)
    assert run.arms[-100:].count(0) >= 95


@given(
    st.sampled_from([1, 2, 8, 64]),
    st.floats(0.1, 20),
    st.floats(0.1, 20),
    st.integers(400, 3000),
)
@settings(max_examples=60)
def test_what_trials_lose_is_bounded(size, alone, few, sentences):
    run = Run(size, 1.0, {1: alone, 8: few}).go(sentences // size)
    costs = zip(SLICES, (alone, few), strict=True)
    best = min([1.0, *(cost for slice_, cost in costs if slice_ <= size)])
    if best < 1.0:
        return  # how soon a faster arm is found is another question
    # A trial may lose more than was expected of it, once for each arm.
    worst = 4 * (alone + (few * 8 if size >= 8 else 0))
    assert run.total <= run.sentences * (1 + 2 * SHARE) + GRACE + worst


def test_in_batches_only_first_trials_lose_more_than_their_share():
    run = Run(8, 1.0, {1: 9.0, 8: 1.5})
    trials = Counter()
    for _ in range(4000):
        before = len(run.arms)
        run.batch()
        new = Counter(run.arms[before:])
        trials += new
        # Another follows where the first one seems to have been held up.
        if any(trials[slice_] > 2 for slice_ in new if slice_):
            assert run.schedule.lost <= 1.001 * SHARE * run.schedule.spent
    assert min(trials[slice_] for slice_ in SLICES) > 2


@pytest.mark.parametrize(("length", "again"), [(9, False), (10, True)])
def test_a_queue_is_tried_again_with_far_longer_sentences(length, again):
    run = Run(8, 1.0, {1: 9.0, 8: 0.9})
    run.schedule.see(5)
    assert run.go(60).arms[-20:].count(8) >= 19
    run.seconds.update({0: 0.6, 8: 0.8})
    run.schedule.see(length)
    assert (run.go(10).arms[-5:] == [0] * 5) == again


def test_a_queue_that_failed_often_is_as_new_with_far_longer_sentences():
    run = Run(8, 1.0, {1: 9.0, 8: 0.5})
    run.schedule.see(5)
    run.go(2000)
    queue = run.schedule._queue(8)
    assert queue.failures > 1 and queue.resume > run.schedule.spent
    run.schedule.see(10)
    assert queue.failures == 0 and queue.resume == 0.0


@pytest.mark.parametrize(("size", "expected"), [(64, 7.0 * 8), (8, 0.5 * 8)])
def test_a_first_trial_waits_until_its_budget_pays_for_all_of_its_rows(size, expected):
    run = Run(1, 1.0, {1: 9.0, 8: 2.0}).go(50)  # a trial that lost
    assert run.schedule.budget(GRACE) < 0.9 * expected
    run.size = size
    while 8 not in run.arms:
        before = run.schedule.budget(GRACE)
        run.batch()
    assert before > 0.9 * expected


@pytest.mark.parametrize("held_up", [False, True])
def test_in_batches_a_trial_that_was_held_up_may_lose_more_than_its_share_again(held_up):
    run = Run(8, 1.0, {1: 99.0, 8: 500.0 if held_up else 2.9})
    while 8 not in run.arms:
        run.batch()
    lost = run.schedule.lost  # another trial is expected to lose as much
    while run.arms.count(8) < 2:
        budget = run.schedule.budget()
        run.batch()
    assert budget > lost - GRACE - 0.1
    assert (budget < lost - 0.1) == held_up


@pytest.mark.parametrize("held_up", [0, 2, 3, 10, 50])
def test_a_sentence_that_other_work_holds_up_decides_nothing(held_up):
    run, plain = Run(1, 1.0, {1: 0.6}), Schedule.record

    def record(slice_, size, sentences, tokens, seconds):
        seconds += 50.0 * (len(run.arms) == held_up)
        plain(run.schedule, slice_, size, sentences, tokens, seconds)

    run.schedule.record = record
    run.go(200)
    assert run.arms.count(1) > 170


@pytest.mark.parametrize("slow", range(1, 4))
def test_a_slow_sentence_among_the_first_does_not_end_a_trial(slow):
    run = Run(1, 1.0, {1: 0.6})
    for _ in range(400):
        run.seconds[1] = 2.2 if run.arms.count(1) == slow else 0.7
        run.batch()
    assert run.total < 0.75 * run.sentences


def test_the_first_queue_of_a_size_is_no_trial():
    """It is measured, and costs trials nothing, though drafts are known to be faster."""
    run = Run(1, 0.002, {1: 0.001, 8: 0.001}).go(400)
    while not run.schedule.measures:
        run.go(1)
    lost, run.size = run.schedule.lost, 64
    assert run.go(1).arms[-1] == 0 and run.schedule.lost == lost
    assert run.go(1).arms[-1] > 0


def test_only_trials_lose():
    """The settled arm is often slower than its mean, too."""
    run = Run(1, 1.0, {1: 2.0}).go(300)
    for number in range(300):
        lost, run.seconds[0] = run.schedule.lost, (0.8, 1.2)[number % 2]
        assert run.go(1).arms[-1] == 1 or run.schedule.lost == lost


class Forgetful(FixedGate):
    forgotten = 0

    def forget(self):
        self.forgotten += 1


@pytest.mark.parametrize(("size", "held_up", "forgotten"), [(1, 9, 1), (1, 0, 0), (8, 9, 0)])
def test_a_gate_forgets_a_first_trial_that_was_held_up(size, held_up, forgotten):
    """Unless it is in use for larger slices."""
    run = Run(size, 1.0, {1: 1.5, 8: 0.5})
    gate = run.schedule.gate = Forgetful()
    for _ in range(3000):
        run.seconds[1] = 1.5 + held_up * (1 not in run.arms)
        run.batch()
    assert run.arms.count(1) > 2
    assert gate.forgotten == forgotten


def test_a_gate_remembers_drafts_that_were_held_up_in_a_later_trial():
    run = Run(1, 1.0, {1: 1.5})
    gate, arm = Forgetful(), run.schedule._slices[1]
    run.schedule.gate = gate
    while arm.failures < 4:
        run.seconds[1] = 9.0 if arm.failures == 1 else 1.5
        run.batch()
    assert gate.forgotten == 0


def test_the_gate_sees_lengths_and_forgets_with_the_schedule():
    class Seeing(Forgetful):
        def see(self, length):
            self.seen = length

    schedule = Schedule(Seeing())
    schedule.see(7)
    schedule.forget()
    assert schedule.gate.seen == 7 and schedule.gate.forgotten == 1


def after_a_queue():
    """A schedule that knows what a queue of one sentence costs, and its arm of drafts."""
    schedule = Schedule(FixedGate())
    for _ in range(10):
        schedule.record(0, 1, 1, TOKENS, 1.0)
    return schedule, schedule._slices[1]


def test_a_trial_was_held_up_until_it_has_lost_nothing():
    schedule, arm = after_a_queue()
    told = []
    for seconds in (0.9, 0.9, 0.9, 50.0, 0.9, 0.1, 0.1, 0.9):
        schedule.record(1, 1, 1, TOKENS, seconds)
        told.append(arm.held_up)
    assert told == [False] * 3 + [True] * 4 + [False]


def test_a_trial_recalls_little_of_those_before_and_all_of_its_own():
    schedule, arm = after_a_queue()
    for _ in range(10):
        arm.add(1, TOKENS, 1.1, None)
    for _ in range(5):
        schedule.record(1, 1, 1, TOKENS, 1.1)
    assert arm.sentences == _RECALLED + 5


def test_what_was_long_ago_hardly_counts():
    arm = _Arm()
    for seconds in [1.0] * 1000 + [2.0] * _MEMORY:
        arm.add(1, 1, seconds, None)
    assert 1.6 < arm.pace < 2.0


def test_another_arm_tells_what_is_usual_of_the_first_sentences_alone():
    arm = _Arm()
    counted = [arm.add(1, 1, seconds, 0.1) for seconds in (1.0, 2.0, 7.0)]
    assert counted == pytest.approx([0.3, 2.0, 6.0])


def test_trials_end_where_they_have_lost_enough_and_become_rarer():
    schedule, arm = Schedule(FixedGate()), _Arm()
    arm.add(4, 4, 4.0, None)

    def rest(*losses):
        for loss in losses:
            before = arm.failures
            schedule._judge(arm, loss, patience=3.0, sentence=1.0)
        assert arm.failures == before + 1 and arm.debt == 0.0
        return arm.resume

    assert rest(2.0, 2.0) == 24.0  # the second trial follows soon
    assert [rest(4.0) * SHARE for _ in range(4)] == [8.0, 16.0, 32.0, 32.0]
    assert rest(2.0, -2.0, 4.0) == 24.0  # it was faster in between
    assert schedule.lost == 4.0 + 4 * 4.0 + 6.0


class Guarded:
    """Sentences one at a time; an undrafted token takes a second, each first draft 500 more."""

    def __init__(self, drafted, stalls):
        self.now, self.tokens, self.drafts = 0.0, 0, 0
        self.drafted, self.stalls = drafted, stalls
        self.gate = Guard(promising=1, lengths=2, clock=lambda: self.now)
        self.schedule = Schedule(self.gate)

    @property
    def busy(self):
        return self.now - 500 * min(self.stalls, self.drafts)

    def sentence(self):
        since, slice_ = self.now, self.schedule.next(1, 1)
        if slice_ == 0:
            self.now, self.tokens = self.now + 40, self.tokens + 40
        else:
            self.gate.begin()
            left = 40
            while left:
                left -= self.iteration(self.gate.choose(1, self.tokens), left)
            self.gate.end(self.tokens)
        self.schedule.record(slice_, 1, 1, 40, self.now - since)

    def iteration(self, arm, left):
        added = 1 if arm == 0 else min(8 if arm == 1 else 20, left)
        self.drafts += arm > 0
        held_up = 500 * (arm > 0 and self.drafts <= self.stalls)
        self.now += 1.1 if arm == 0 else 1 + self.drafted * added + held_up
        self.tokens += added
        return added


@pytest.mark.parametrize("stalls", [0, 1, 2])
@pytest.mark.parametrize(("drafted", "share"), [(0.5, 0.6), (0.7, 0.8), (3.0, 1.02)])
def test_drafts_are_tried_again_soon_where_other_work_held_the_first_up(drafted, share, stalls):
    run = Guarded(drafted, stalls)
    for _ in range(400):
        run.sentence()
    assert run.busy < share * 400 * 40


class Alike(Guarded):
    """A shorter draft takes 0.98 of the time of a longer one, which is settled on first."""

    def iteration(self, arm, left):
        added = 1 if arm == 0 else min(8 if arm == 1 else 20, left)
        self.now += added * (1.1, 0.49, 0.5)[min(arm, 2)]
        self.tokens += added
        return added


def test_trials_of_a_length_that_is_hardly_faster_do_not_end_a_long_run():
    run = Alike(0.0, 0)
    for _ in range(3000):
        run.sentence()
    assert run.now < 0.51 * 3000 * 40


def test_nothing_is_remembered_after_forget():
    run = Run(1, 1.0, {1: 0.5}).go(1)
    assert run.schedule.paces() is None
    run.go(50)
    assert run.schedule.paces() == pytest.approx((TOKENS / 1.0, TOKENS / 0.5))
    run.schedule.forget()
    assert run.schedule.paces() is None and run.schedule.next(1, 1) == 0


@pytest.mark.parametrize(("batches", "seconds", "most"), [(20, 0.25, 0.25), (1, 0.01, 1.0)])
def test_paces_are_those_of_the_size_that_took_most_time(batches, seconds, most):
    run = Run(1, 1.0, {1: 0.5, 8: 2.0}).go(20)
    run.size, run.seconds[0] = 64, seconds
    run.go(batches)
    assert run.schedule.paces() == pytest.approx((TOKENS / most, TOKENS / 0.5))
