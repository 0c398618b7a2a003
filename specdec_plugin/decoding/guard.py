"""When to draft: only where it is faster, which is measured while decoding.

What a draft costs depends on the model, the machine and its other work. What it brings depends on
the text. So the guard measures iterations without drafts, and with drafts of each length: the arms
of a bandit. For each number of rows it settles on the arm that adds a token in the least time. Now
and then a short burst of iterations tries another arm. What such trials lose is measured, too, and
kept to a small share of the time.
"""

import math
import time
from typing import Callable, List, Optional, Union

from .gate import Paces
from .trials import CLEARLY, Explorer, SourceLengths, pause

#: How many iterations of an arm count; older ones fade.
MEMORY = 128
#: Of an older measurement, the iterations that count beside those of a new trial.
_RECALLED = 16
#: Iterations of a trial of one row, and of many. What a draft brings varies so much that with
#: fewer of them the better arm loses often.
BURST, BURST_OF_MANY = 32, 8
#: Iterations that have to be measured before the first trial.
_LEAST = 2
#: Iterations after which another arm may be tried before the number of rows changes.
_LONG = 32
#: The iterations that trials may lose beyond their share, of one row, and of many. A sentence alone
#: has most iterations. With fewer, a trial ends before it can tell faster drafts from an unlucky
#: sentence.
GRACE, GRACE_OF_MANY = 20.0, 3.0
#: The most iterations of a single row's trial between two looks at it. The kernels do them in one
#: call, as they do those of the settled arm, so that both are measured alike.
_TRIED = 8
#: After a trial, none of the same arm for so many times its duration.
_PAUSE = 16.0
#: What is assumed of the first draft if nothing is known: the iterations that it costs.
_UNKNOWN_COST = 8.0
#: Between two measurements, other work of the machine may hold iterations up. It counts no more
#: than the time of so many.
_HELD_UP = 8.0
#: Iterations between two looks where a question makes the host wait for a device.
_PATIENT = 64
#: Iterations until a trial is looked at first and until it is looked at again, at least, where the
#: host has to wait. The wait counts, too: a single iteration would tell nothing of many, and the
#: first look can tell only whether drafts are out of the question.
_FIRST, _SECOND = 2, 16


class _Arm:
    """What iterations of one draft length cost and bring, with one number of rows.

    Attributes:
        seconds, tokens, iterations: measured; recent iterations count most.
        resume: seconds spent with this number of rows before which it is not tried again.
        failures: trials in a row that lost.
    """

    __slots__ = ("failures", "iterations", "resume", "seconds", "tokens")

    def __init__(self) -> None:
        self.seconds = self.tokens = self.iterations = self.resume = 0.0
        self.failures = 0

    @property
    def pace(self) -> float:
        """Seconds a token."""
        return self.seconds / self.tokens

    def add(self, seconds: float, tokens: int, iterations: int) -> None:
        """Note some iterations."""
        self._scale((1 - 1 / MEMORY) ** iterations)
        self.seconds += seconds
        self.tokens += tokens
        self.iterations += iterations

    def recall(self) -> None:
        """Let the past count no more than what a trial is about to measure."""
        if self.iterations > _RECALLED:
            self._scale(_RECALLED / self.iterations)

    def _scale(self, factor: float) -> None:
        self.seconds *= factor
        self.tokens *= factor
        self.iterations *= factor


class _Trial:
    """A burst of iterations of another arm than the settled one."""

    __slots__ = ("arm", "iterations", "seconds", "tokens")

    def __init__(self, arm: int) -> None:
        self.arm = arm
        self.seconds, self.tokens, self.iterations = 0.0, 0, 0


class _Bucket:
    """What is known of similar numbers of rows: 1, 2, 3 to 4, 5 to 8, and so on.

    Attributes:
        number: from 0 on.
        arms: without drafts, then one for each draft length.
        settled: the one that is used.
        trial: of another one.
        barred: whether there could be no drafts when so many rows were left the last time.
        burst: iterations of a trial.
        spent: seconds.
    """

    __slots__ = ("arms", "barred", "burst", "number", "settled", "spent", "trial")

    def __init__(self, number: int, arms: int) -> None:
        self.number = number
        self.burst = BURST if number == 0 else BURST_OF_MANY
        self.arms = [_Arm() for _ in range(arms)]
        self.settled, self.spent, self.barred = 0, 0.0, False
        self.trial: Optional[_Trial] = None


class Guard(Explorer):
    """Drafts where that is faster.

    A change of the arm waits for a batch, for another number of rows, or for 32 iterations (64 of a
    patient guard), because a drafter has to read the source before it drafts. The first trial of
    drafts waits for two iterations only, or with a patient guard for a sentence. Drafts that lose
    end when they are looked at.

    Args:
        promising: rows up to which drafts are tried at once. Beyond it, the first trial waits until
            it can hardly lose more than its share. None: any number.
        lengths: how many draft lengths there are.
        clock: seconds since any moment, rising.
        unusual: how often something took time that is taken once only, such as a compilation. An
            interval in which it rises tells nothing.
        patient: whether a question is dear, because a device that works ahead has to be waited
            for. Then 64 iterations pass before another one, as far as a trial can afford them.
    """

    def __init__(
        self,
        promising: Optional[int] = None,
        lengths: int = 1,
        clock: Callable[[], float] = time.perf_counter,
        unusual: Callable[[], int] = lambda: 0,
        patient: bool = False,
    ) -> None:
        self.promising, self._patient, self._unusual = promising, patient, unusual
        self._count, self._clock = 1 + lengths, clock
        self.forget()

    def forget(self) -> None:
        """See :class:`.Gate`."""
        super().forget()
        self._buckets: List[_Bucket] = []
        self._warm = False
        self._source_lengths = SourceLengths()
        self.begin()

    def see(self, length: int) -> None:
        """Forget with far longer sentences which arms were slower, so that they are tried again."""
        if not self._source_lengths.far_longer(length):
            return
        self.forgive()
        for bucket in self._buckets:
            settled = bucket.arms[bucket.settled]
            bucket.arms = [each if each is settled else _Arm() for each in bucket.arms]
            bucket.trial = None  # what it measured is forgotten, too

    def begin(self) -> None:
        """See :class:`.Gate`."""
        self._bucket: Optional[_Bucket] = None
        self._low, self._high, self._check = 1, 0, 0  # rows of the bucket; when to look again
        self._arm = 0
        self._since, self._tokens, self._iterations, self._age = 0.0, 0, 0, 0
        self._seen = 0  # unusual events

    def choose(self, rows: int, tokens: int, drafts: bool = True) -> int:
        """See :class:`.Gate`."""
        known = self._iterations < self._check and self._low <= rows <= self._high
        if known and (drafts or self._arm == 0):
            self._iterations += 1
            return self._arm
        self._measure(tokens)
        if drafts:
            self._decide(rows)
        else:
            self._bar(rows)
        self._iterations = 1
        return self._arm

    def ahead(self) -> int:
        """See :class:`.Gate`."""
        return max(0, self._check - self._iterations)

    def skip(self, iterations: int) -> None:
        """See :class:`.Gate`."""
        self._iterations += iterations

    def end(self, tokens: int) -> None:
        """See :class:`.Gate`."""
        self._measure(tokens)
        self.begin()

    def rests(self, rows: int) -> bool:
        """See :class:`.Gate`."""
        most = (rows - 1).bit_length()
        for number in range(most + 1):
            bucket = self._find(1 << number)
            if bucket.barred and number < most:
                continue
            if bucket.settled or bucket.trial or bucket.arms[0].iterations < _LEAST:
                return False
            if self._due(bucket) is not None:
                return False
        return True

    def undrafted(self, rows: int, tokens: int, seconds: float) -> None:
        """See :class:`.Gate`. Of several rows, nobody knows how many were left when.

        So each number of rows is taken to have had the same share of the time.
        """
        self.spent += seconds
        numbers = range((rows - 1).bit_length() + 1)
        for number in numbers:
            self._find(1 << number).spent += seconds / len(numbers)
        if rows == 1:
            self._find(1).arms[0].add(seconds, tokens, tokens)

    def explored(self, rows: int) -> bool:
        """See :class:`.Gate`."""
        return all(arm.tokens for arm in self._find(rows).arms[1:])

    def paces(self) -> Optional[Paces]:
        """See :class:`.Gate`."""
        compared = [
            (each.spent, each.arms[0].pace, min(arm.pace for arm in each.arms[1:] if arm.tokens))
            for each in self._buckets
            if each.arms[0].tokens and any(arm.tokens for arm in each.arms[1:])
        ]
        if not compared:
            return None
        _, without, drafted = max(compared)
        return Paces(1 / without, 1 / drafted)

    def _measure(self, tokens: int) -> None:
        """Note the iterations since the last time."""
        now, bucket, iterations = self._clock(), self._bucket, self._iterations
        seconds, added = now - self._since, tokens - self._tokens
        unusual, before = self._unusual(), self._seen
        self._since, self._tokens, self._seen = now, tokens, unusual
        if bucket is None or added == 0 or unusual != before:
            return
        if not self._warm:  # the first iteration of all fills the processor's caches
            self._warm = True
            return
        self._age += iterations
        seconds = min(seconds, (iterations + _HELD_UP) * self._usual(bucket))
        self.spent += seconds
        bucket.spent += seconds
        trial = bucket.trial
        if trial is not None:
            trial.seconds += seconds
            trial.tokens += added
            trial.iterations += iterations
        bucket.arms[self._arm].add(seconds, added, iterations)

    def _usual(self, bucket: _Bucket) -> float:
        """Seconds of an iteration, as far as they are known; of a first draft, of any other."""
        own = bucket.arms[self._arm]
        if own.iterations:
            return own.seconds / own.iterations
        known = (each for each in bucket.arms if each.iterations)
        return max((each.seconds / each.iterations for each in known), default=math.inf)

    def _decide(self, rows: int) -> None:
        """Settle the arm for the iterations to come."""
        bucket = self._find(rows)
        bucket.barred = False
        free = bucket is not self._bucket or self._age >= _LONG
        if bucket.trial is None and not free and bucket.arms[bucket.settled].iterations >= _LEAST:
            free = not any(arm.iterations for arm in bucket.arms[1:])
        self._enter(bucket)
        if bucket.trial is not None:
            self._judge(bucket, bucket.trial, free)
        if bucket.trial is None and free:
            self._try(bucket)
        if free:
            self._age = 0
        trial = bucket.trial
        self._arm = bucket.settled if trial is None else trial.arm
        self._check = (
            self._settled_for(bucket) if trial is None else self._until_look(bucket, trial)
        )

    def _bar(self, rows: int) -> None:
        """Draft nothing in the iterations to come, whatever the arm is that is settled."""
        bucket = self._find(rows)
        continues = bucket is self._bucket
        self._enter(bucket)
        bucket.barred, trial = True, bucket.trial
        # What follows is just what a trial of no drafts measures, if it was under way. Another one
        # would take these iterations for its own, or wait for others that never come.
        if trial is not None and not (continues and trial.arm == 0):
            bucket.trial = None
        self._arm, self._check = 0, _PATIENT if self._patient else _LONG

    def _enter(self, bucket: _Bucket) -> None:
        """Note that its number of rows is left."""
        if bucket is not self._bucket:
            self._bucket, self._age = bucket, 0
            self._high = 1 << bucket.number
            self._low = self._high // 2 + 1

    def _settled_for(self, bucket: _Bucket) -> int:
        """Iterations of the settled arm until it is looked at again."""
        if not self._warm:
            return _FIRST if self._patient else 1
        if self._patient:
            return _PATIENT
        return _LEAST if bucket.arms[bucket.settled].iterations < _LEAST else _LONG

    def _until_look(self, bucket: _Bucket, trial: _Trial) -> int:
        """Iterations of a trial until it is looked at again: no more than it can afford."""
        if bucket.number > 0 and not self._patient:
            return 1
        least = 1
        if self._patient:
            least = _SECOND if trial.iterations > 0 else _FIRST
        settled, tried = bucket.arms[bucket.settled], bucket.arms[trial.arm]
        if self._patient and tried.iterations >= _LEAST:
            most, each = _PATIENT, _loss(tried, settled) / tried.iterations
        elif trial.iterations > 0:
            most = min(_TRIED, trial.iterations, bucket.burst - trial.iterations)
            each = _loss(trial, settled) / trial.iterations
        else:
            return least
        if each > 0:
            most = min(most, int((self._allowance(bucket) - _loss(trial, settled)) / each))
        return max(least, most)

    def _find(self, rows: int) -> _Bucket:
        number = (rows - 1).bit_length()
        while len(self._buckets) <= number:
            self._buckets.append(_Bucket(len(self._buckets), self._count))
        return self._buckets[number]

    def _allowance(self, bucket: _Bucket) -> float:
        """Seconds that trials may lose now."""
        without = bucket.arms[0]
        iterations = max(GRACE_OF_MANY, GRACE / (1 << bucket.number))
        grace = iterations * without.seconds / without.iterations if without.iterations else 0.0
        return self.budget(grace)

    def _judge(self, bucket: _Bucket, trial: _Trial, free: bool) -> None:
        """End a trial that has told enough, or lost too much."""
        tried, settled = bucket.arms[trial.arm], bucket.arms[bucket.settled]
        loss = _loss(trial, settled)
        enough = trial.iterations >= bucket.burst and (free or trial.arm > 0)
        if not enough and loss <= self._allowance(bucket):
            return
        bucket.trial = None
        tried.resume = bucket.spent + _PAUSE * trial.seconds
        # What a device does between sentences, such as reading a source, is in no measurement.
        alike = bucket.settled > 0 or self._patient
        share = CLEARLY if trial.arm > 0 and alike else 1.0
        measured = tried.tokens > 0  # Else all of the trial was unusual, or it has not begun.
        if measured and loss <= 0 and tried.pace < share * settled.pace:
            settled.resume, tried.failures = tried.resume, 0
            bucket.settled = trial.arm
            return
        tried.resume = max(tried.resume, bucket.spent + pause(loss, tried.failures))
        tried.failures += loss > 0
        self.lose(loss)

    def _try(self, bucket: _Bucket) -> None:
        """Begin the trial of another arm, if one is due."""
        number = self._due(bucket)
        if number is not None:
            bucket.trial = _Trial(number)
            bucket.arms[number].recall()

    def _due(self, bucket: _Bucket) -> Optional[int]:
        """The arm that may be tried now, because the trial can be afforded; None: none."""
        settled = bucket.arms[bucket.settled]
        if settled.iterations < _LEAST:
            return None
        for number in self._others(bucket):
            arm = bucket.arms[number]
            better = arm.tokens > 0 and arm.pace < settled.pace
            if bucket.spent < arm.resume and not better:
                continue
            if self._expected(bucket, arm) <= self._allowance(bucket):
                return number
        return None

    def _others(self, bucket: _Bucket) -> List[int]:
        """The arms that may be tried, in this order.

        First come those that were never tried: what is most unlike the others, which may be the
        drafts of another drafter. Then come no drafts, and the nearest lengths.
        """
        arms, settled = bucket.arms, bucket.settled
        known = [arm for arm in range(1, self._count) if arms[arm].tokens]
        if not known:
            return [self._count - 1]
        best = settled or min(known, key=lambda arm: arms[arm].pace)
        new = [arm for arm in range(1, self._count) if not arms[arm].tokens]
        unlike = sorted(new, key=lambda arm: -min(abs(arm - each) for each in known))
        near = sorted(known, key=lambda arm: abs(arm - best))
        return [arm for arm in (*unlike, 0, *near) if arm != settled]

    def _expected(self, bucket: _Bucket, arm: _Arm) -> float:
        """Seconds that a trial is expected to lose."""
        settled = bucket.arms[bucket.settled]
        if arm.tokens > 0:
            return bucket.burst * _loss(arm, settled) / arm.iterations
        if self.promising is None or 1 << bucket.number <= self.promising:
            return 0.0
        return bucket.burst * self._foreseen(bucket, settled)

    def _foreseen(self, bucket: _Bucket, settled: _Arm) -> float:
        """Seconds that an iteration with a first draft may lose, told by the nearest bucket."""
        mine = settled.seconds / settled.iterations
        known = [each for each in self._buckets if each.arms[-1].tokens and each.arms[0].tokens]
        if not known:
            return _UNKNOWN_COST * mine
        near = min(known, key=lambda each: abs(each.number - bucket.number))
        without, drafted = near.arms[0], near.arms[-1]
        more = 2.0 ** max(0, bucket.number - near.number)
        scale = more if more > 1 else mine * without.iterations / without.seconds
        cost = scale * drafted.seconds / drafted.iterations
        brings = drafted.tokens / drafted.iterations * without.iterations / without.tokens
        return cost - brings * mine


def _loss(arm: Union[_Arm, _Trial], settled: _Arm) -> float:
    """Seconds that an arm took beyond what the settled one needs for the same tokens."""
    return arm.seconds - arm.tokens * settled.pace
