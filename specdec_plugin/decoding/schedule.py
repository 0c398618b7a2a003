"""How a batch is decoded: all of it as a queue without drafts, or a few sentences at a time with.

Drafts help most where few rows leave the processor idle, and a queue keeps it busy with many. What
is faster depends on the model, the text and the machine. So the schedule measures, batch by batch,
and keeps what its trials lose to a small share of the time. The output does not depend on it.
"""

import math
from collections import deque
from statistics import median_low
from typing import Deque, Dict, NamedTuple, Optional

from .gate import Gate, Paces
from .trials import RARER, Explorer, SourceLengths, pause

#: Sentences that are drafted for together.
SLICES = (1, 8)
#: The sentences whose time trials may lose beyond their share of it.
GRACE = 4.0
#: Sentences of an arm that are measured before it is judged, and that count of older ones.
_JUDGED, _RECALLED, _MEMORY = 4, 2, 64
#: What an unknown arm is assumed to take, relative to a queue of as many rows, at most.
_UNKNOWN, _WORST = 1.5, 8.0
#: Drafts have to take at most this share of a queue's time. Two measurements of one arm differ by
#: some percent, too, so that drafts that seem to gain less may lose.
_CLEARLY = 0.97
#: A trial of them ends so many sentences after the gate has measured all of its drafts, and after
#: so many in any case.
_ENOUGH, _MOST = 12, 40
#: An arm is judged at once where a trial loses more than this share of its time.
_HOPELESS = 0.4
#: Sentences that take more than so many times as long as usual were held up by other work of the
#: machine. No more than that counts.
_OUTLIER = 3.0
#: Measurements whose median is usual.
_USUAL = 8
#: Other trials of drafts end when they have lost the time of so many sentences. Some sentences are
#: slower with drafts even where most are faster.
_PATIENCE = 3.0
#: The first trial may have met other work of the machine. The second one follows after the time of
#: so many sentences, if it can be afforded then.
_AGAIN = 24.0
#: The settled arm is measured about so often, in seconds. A small model decodes a sentence in two
#: milliseconds, and to measure each one would take a hundredth of them.
_PERIOD = 0.02


class _Record(NamedTuple):
    """Sentences that were decoded together."""

    sentences: int
    tokens: int
    seconds: float


class _Arm:
    """What an arm costs: sentences, tokens and seconds, of which the recent ones count."""

    def __init__(self) -> None:
        self.sentences = self.tokens = self.seconds = 0.0
        self.resume = 0.0  # seconds spent in all before which it is not tried again
        self.debt = 0.0  # seconds that the trial under way has lost
        self.in_trial = 0  # sentences of that trial
        self.since_explored = 0  # those since the gate has measured all of its drafts
        self.ties = 0  # trials in a row that were neither lost nor clearly won
        self.failures = 0
        self.hopeless = False  # the last trial was far slower
        self.tried = False  # a trial is under way, or was won
        self.held_up = False  # that trial, by other work of the machine
        self._recent: Deque[_Record] = deque(maxlen=_USUAL)
        self._records = 0

    @property
    def pace(self) -> float:
        """Seconds a token."""
        return self.seconds / self.tokens

    @property
    def judged(self) -> bool:
        """Whether enough was measured."""
        return self.hopeless or self.sentences >= _JUDGED

    def add(self, sentences: int, tokens: int, seconds: float, other: Optional[float]) -> float:
        """Note some sentences.

        Args:
            sentences: how many.
            tokens: of them.
            seconds: that they took.
            other: the pace of another arm, which is usual while only these are known.

        Returns:
            the seconds that count.
        """
        new = [_Record(sentences, tokens, seconds)]
        self._recent += new
        self._records += 1
        paces = [each.seconds / each.tokens for each in self._recent]
        usual = median_low(paces if len(paces) > 1 or other is None else [*paces, other])
        if self._records <= _JUDGED:  # little was known when the first ones were noted
            self.sentences = self.tokens = self.seconds = 0.0
            new = list(self._recent)
        self.fade(_MEMORY)
        for each in new:
            self.sentences += each.sentences
            self.tokens += each.tokens
            self.seconds += min(each.seconds, _OUTLIER * usual * each.tokens)
        return min(seconds, _OUTLIER * usual * tokens)

    def fade(self, most: int) -> None:
        """Let what was measured count as so many sentences at most."""
        if self.sentences > most:
            factor = most / self.sentences
            self.sentences *= factor
            self.tokens *= factor
            self.seconds *= factor


class Schedule(Explorer):
    """Chooses the fastest arm, and tries the others now and then.

    Arms are a queue without drafts, and drafts for slices of so many rows.

    Args:
        gate: of the iterations that may have drafts.

    Attributes:
        measures: whether :meth:`record` has to be told of what :meth:`next` gave last.
    """

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self._begin()

    def forget(self) -> None:
        """Forget what was measured."""
        self.gate.forget()
        self._begin()

    def _begin(self) -> None:
        super().forget()
        self._queues: Dict[int, _Arm] = {}  # by the number of bits of the rows of a batch
        self._slices = {size: _Arm() for size in SLICES}
        self._source_lengths = SourceLengths()
        self._rests, self._rested, self._rest = 0, 0, (0, 0)
        self.measures = True

    def see(self, length: int) -> None:
        """Notice how long the sources of a batch are, and let the gate notice it.

        A queue that was slower with short sentences is soon tried again with far longer ones, where
        slower drafts would cost more.
        """
        if self._source_lengths.far_longer(length):
            for queue in self._queues.values():
                queue.resume, queue.failures = 0.0, 0
            self._rests = 0
        self.gate.see(length)

    def next(self, size: int, left: int) -> int:
        """What to decode next.

        Args:
            size: sentences of the batch.
            left: how many of them are not decoded.

        Returns:
            how many of them to draft for, at most; 0 to decode all of them as a queue.
        """
        self.measures = self._rests == 0 or self._rest[1] != size
        if not self.measures:
            self._rests -= 1
            self._rested += 1
            return self._rest[0]
        queue = self._queue(size)
        if queue.tokens == 0:
            return 0
        settled = self._settled(size)
        for slice_ in (0, *SLICES):
            if slice_ != settled and slice_ <= left and self._due(slice_, settled, size):
                self._begin_trial(slice_, settled, size)
                return slice_
        return settled

    def record(self, slice_: int, size: int, sentences: int, tokens: int, seconds: float) -> None:
        """Note how long sentences took that were drafted for by ``slice_``, or 0 for a queue."""
        settled, arm = self._settled(size), self._arm(slice_, size)
        first = slice_ == 0 and arm.tokens == 0  # no trial: nothing else of this size is known
        trial = slice_ != settled and not first
        if arm.judged and trial and arm.in_trial == 0:
            arm.fade(_RECALLED)
        if trial:
            arm.in_trial += sentences
            arm.since_explored += sentences if slice_ and self.gate.explored(slice_) else 0
        else:
            arm.in_trial = arm.since_explored = arm.ties = 0
        usual = self._queue(size).pace if slice_ else None
        counted = arm.add(sentences, tokens, seconds, usual)
        arm.held_up = counted < seconds or (arm.held_up and arm.debt > 0)
        self.spent += seconds * (1 + self._rested)
        self._rests = self._rested = 0
        known = all(arm.tokens for each, arm in self._slices.items() if each <= size)
        if slice_ == settled and slice_ in (0, size) and known:
            self._rests, self._rest = int(_PERIOD / max(seconds, 1e-6)), (slice_, size)
        if not trial:
            return
        best = self._arm(settled, size).pace
        arm.hopeless = arm.pace - best > _HOPELESS * arm.pace
        sentence = self._sentence(size)
        self._judge(arm, counted - tokens * best, _PATIENCE * sentence if slice_ else 0.0, sentence)
        enough = arm.since_explored >= _ENOUGH or arm.in_trial >= _MOST
        if slice_ and enough and self._settled(size) == 0:
            arm.ties, arm.held_up = arm.ties + 1, False
            self._end_trial(arm, 2.0 ** min(arm.ties, RARER) * _AGAIN * sentence)

    def _begin_trial(self, slice_: int, settled: int, size: int) -> None:
        """Let the gate forget a first trial that was held up: it would still refuse drafts."""
        arm = self._arm(slice_, size)
        if settled == 0 and not arm.tried and arm.held_up and arm.failures == 1:
            self.gate.forget()
        arm.tried = True

    def _judge(self, arm: _Arm, loss: float, patience: float, sentence: float) -> None:
        """Continue a trial, or end it where it has lost more than ``patience``.

        Args:
            arm: that is tried.
            loss: seconds that the last sentences lost; negative if they were faster.
            patience: seconds.
            sentence: seconds of a sentence without drafts.
        """
        self.lose(loss)
        arm.debt = max(0.0, arm.debt + loss)
        if arm.debt == 0.0:
            arm.failures = 0
        elif arm.hopeless or (arm.judged and arm.debt > patience):
            rest = pause(arm.debt, arm.failures)
            self._end_trial(arm, rest if arm.failures else min(rest, _AGAIN * sentence))
            arm.failures, arm.ties = arm.failures + 1, 0

    def _end_trial(self, arm: _Arm, rest: float) -> None:
        """End a trial, and begin no other one of the arm for so many seconds."""
        arm.resume = self.spent + rest
        arm.debt, arm.in_trial, arm.since_explored, arm.tried = 0.0, 0, 0, False

    def paces(self) -> Optional[Paces]:
        """Tokens a second without and with drafts; None if they were not compared."""
        drafted = [arm.pace for arm in self._slices.values() if arm.judged]
        queues = [arm for arm in self._queues.values() if arm.tokens]
        if not drafted or not queues:
            return self.gate.paces()
        most = max(queues, key=lambda arm: arm.seconds)
        return Paces(1 / most.pace, 1 / min(drafted))

    def _queue(self, size: int) -> _Arm:
        return self._queues.setdefault(size.bit_length(), _Arm())

    def _arm(self, slice_: int, size: int) -> _Arm:
        return self._slices[slice_] if slice_ else self._queue(size)

    def _sentence(self, size: int) -> float:
        """Seconds of a sentence in a queue."""
        queue = self._queue(size)
        return queue.seconds / queue.sentences

    def _settled(self, size: int) -> int:
        """The fastest arm that is known: a slice, or 0 for a queue."""
        queue = self._queue(size)
        settled, pace = 0, queue.pace * _CLEARLY if queue.tokens else math.inf
        for slice_, arm in self._slices.items():
            if slice_ <= size and arm.judged and arm.pace < pace:
                settled, pace = slice_, arm.pace
        return settled

    def _due(self, slice_: int, settled: int, size: int) -> bool:
        """Whether to try an arm now: after a while, where it can be afforded."""
        arm = self._arm(slice_, size)
        if self.spent < arm.resume:
            return False
        queue, sentence = self._queue(size), self._sentence(size)
        allowed = self.budget()
        # Eight sentences of a batch lose more than one alone: only a first trial may, or one that
        # other work held up. A queue is tried soon, because sentences have often become longer.
        if size == 1 or slice_ == 0 or arm.tokens == 0 or arm.held_up:
            allowed += GRACE * sentence
        if arm.tokens > 0:
            # What was measured may have been other sentences, shorter or longer ones.
            tokens = (slice_ or size) * queue.tokens / queue.sentences
            return tokens * (arm.pace - self._arm(settled, size).pace) <= allowed
        slower = min(_WORST, _UNKNOWN * size / slice_) if size > slice_ else _UNKNOWN
        return (slower - 1) * slice_ * sentence <= allowed
