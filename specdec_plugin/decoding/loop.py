"""Draft, verify, accept, repeat: the loop that every method shares.

With n tokens accepted, the verifier is fed ``[last accepted, d_1 … d_m]`` and predicts
what follows each. The accepted prefix of the draft and the verifier's next token
are appended, and its cache keeps exactly what was accepted. So an iteration adds
1 to m + 1 tokens to a row. Rows accept different counts, finish at different
iterations and then leave the batch. The host waits for the device once an iteration.

A gate decides in which iterations the drafter is asked. The drafter starts with the rows that are
left when it is first asked, and stops when it is not.
"""

import time
from typing import Any, Callable, Dict, List, Optional, Union

from torch import Tensor

from ..engine.free_memory import LARGE_BATCH
from ..engine.weights import check_deferred
from .captured_iterations import CapturedIterations
from .drafter import Drafter
from .gate import FixedGate, Gate
from .native_verification import Repeated
from .schedule import Schedule
from .state import Batch, Draft, Outcome, Rows
from .statistics import Statistics
from .steps import Step

#: Tokens of a prefix from which on a single sentence is faster if they are verified at once. With
#: four sentences a queue, which takes them step by step, was as fast.
_LONG_PREFIX = 4
#: Iterations that the kernels do at most before they return to Python.
_REPEATED = 64
#: Is called after each iteration with the rows, whose new tokens are their last ones, the draft
#: and its outcome.
Watcher = Callable[[Rows, Draft, Outcome], None]


class DecodingLoop:
    """Decodes batches with one drafter and one way to judge its drafts.

    Args:
        drafter: proposes tokens; None for greedy decoding.
        step: judges its drafts.
        statistics: where iterations, acceptance and time are counted.
        keep_history: also return the draft and the outcome of each iteration.
        gate: decides when the drafter is asked; None: always.

    Attributes:
        watcher: is told each iteration when it is done, as when tokens are shown while they
            appear; None: nobody. With one, each iteration returns to Python.
    """

    def __init__(
        self,
        drafter: Optional[Drafter],
        step: Step,
        statistics: Statistics,
        keep_history: bool = False,
        gate: Optional[Gate] = None,
    ) -> None:
        self.drafter = drafter
        self.step = step
        self.statistics = statistics
        self.keep_history = keep_history
        self.gate: Gate = FixedGate() if gate is None else gate
        self._started = False
        fixed = drafter is None or isinstance(self.gate, FixedGate)
        self.schedule: Optional[Schedule] = None if fixed else Schedule(self.gate)
        self._asked = 0  # rows, in the iterations in which there was a draft
        self._history: List[List[Tensor]] = []  # of each row of the batch; see `_remember`
        self.watcher: Optional[Watcher] = None

    def decode(self, batch: Batch) -> List[List[Dict[str, Any]]]:
        """Decode a batch.

        Returns:
            for each sentence a list of one hypothesis: ``tokens`` and ``positional_scores``
            (length,), ``steps`` (iterations), and ``history``: (draft, added tokens) of each
            iteration.
        """
        self.step.refresh()
        if self.drafter is not None:
            with self.statistics.timed("drafter"):
                self.drafter.refresh()
        self.measured.see(batch.source)
        found = self._in_parts(batch) if self._may_queue(batch) else self._drafted(batch)
        self.statistics.sentences += batch.size
        self.statistics.batches += 1
        return [[hypothesis] for hypothesis in found]

    def _may_queue(self, batch: Batch) -> bool:
        """Whether the kernels may decode sentences of a batch in one call, without drafts."""
        possible = self.step.exact and self.step.queues()
        return possible and not self._watched and not _verifies_prefix(batch)

    @property
    def _watched(self) -> bool:
        """Whether somebody looks at each iteration."""
        return self.keep_history or self.watcher is not None

    def _in_parts(self, batch: Batch) -> List[Dict[str, Any]]:
        """A hypothesis for each sentence, one part after another with or without drafts."""
        size, begin, found = batch.size, 0, []
        while begin < size:
            together = self._next(size, size - begin)
            end = min(size, begin + (together or size))
            found += self._decode_part(batch.left(range(begin, end)), together, size)
            begin = end
        if size >= LARGE_BATCH:
            self.step.forget_queue()
        return found

    def _decode_part(self, part: Batch, together: int, size: int) -> List[Dict[str, Any]]:
        """A hypothesis for each sentence of a part. It is timed.

        Args:
            part: the sentences that come next.
            together: how many of them to draft for at a time, as the schedule wants; 0: for none.
            size: sentences of the whole batch.
        """
        count = part.size
        begin, before = time.perf_counter(), self.statistics.tokens
        rests = together > 0 and self.gate.rests(count)
        queued = rests or together == 0
        if size >= LARGE_BATCH:
            self.step.free_memory(queued)
        found = self._queued(part) if queued else self._drafted(part)
        seconds, tokens = time.perf_counter() - begin, self.statistics.tokens - before
        if rests:
            self.gate.undrafted(count, tokens, seconds)
        if self.schedule is not None and self.schedule.measures:
            self.schedule.record(together, size, count, tokens, seconds)
        return found

    @property
    def measured(self) -> Union[Gate, Schedule]:
        """What knows whether drafts paid."""
        return self.schedule or self.gate

    def forget(self) -> None:
        """Forget what was learned from the batches before."""
        if self.drafter is not None:
            self.drafter.forget()
        self.measured.forget()

    def _next(self, size: int, left: int) -> int:
        """How many sentences of a batch to draft for; 0: none, all that are left are a queue."""
        if self.drafter is None:
            return 0
        return left if self.schedule is None else self.schedule.next(size, left)

    def _queued(self, batch: Batch) -> List[Dict[str, Any]]:
        """A hypothesis for each sentence, without drafts."""
        found = self.step.queue(batch)
        for hypothesis in found:
            hypothesis.update(steps=len(hypothesis["tokens"]), history=[])
            if self.drafter is not None:
                self.drafter.ended(hypothesis["tokens"])
        tokens = sum(len(each["tokens"]) for each in found)
        self.statistics.count_undrafted(tokens, self.drafter is not None)
        return found

    def _drafted(self, batch: Batch) -> List[Dict[str, Any]]:
        """A hypothesis for each sentence, with drafts where the gate lets them."""
        rows = Rows(batch)
        self._history = [[] for _ in rows.order]
        finished: Dict[int, Dict[str, Any]] = {}  # by index in the batch
        self._stop()
        iterations, self._asked = self.statistics.iterations, 0
        try:
            self.step.start(batch)
            self.gate.begin()
            while rows.size > 0:
                outcome = self._iterate(batch, rows)
                if any(outcome.ended):
                    self._finish(rows, outcome, finished)
                if rows.size > 0:
                    self.step.keep(rows)
        finally:  # Caches of a batch that was interrupted, too, may take much memory.
            self._stop()
            self.step.end()
        self.gate.end(self.statistics.tokens)
        if self.drafter is not None:
            self.statistics.gated += self.statistics.iterations - iterations - self._asked
        return [{**finished[row], "history": steps} for row, steps in enumerate(self._history)]

    def _iterate(self, batch: Batch, rows: Rows) -> Outcome:
        """One iteration, or several; the outcome of the last one."""
        prefix = rows.constraints.prefix
        if rows.steps == 0 and prefix is not None and self.step.verifies:
            self._asked += rows.size
            return self._take(rows, Draft(prefix, prefix.ne(rows.constraints.pad).sum(1)))
        drafter = self.drafter
        if drafter is not None and not self._wants_draft(drafter, batch, rows):
            drafter = None
        outcome = self._repeat(drafter, rows)
        if outcome is not None:
            return outcome
        if drafter is None:
            return self._take(rows, rows.empty_draft())
        with self.statistics.timed("drafter"):
            draft = drafter.propose(rows)
        return self._take(rows, draft)

    def _take(self, rows: Rows, draft: Draft) -> Outcome:
        """Let a draft be judged, and tell what became of it."""
        check_deferred()
        outcome = self.step.take(rows, draft)
        self.statistics.count(outcome.drafted, outcome.kept, outcome.added)
        if self.drafter is not None and self._started:
            self.drafter.accept(rows, outcome)
        if self.keep_history:
            _remember(self._history, rows, draft, outcome)
        if self.watcher is not None:
            self.watcher(rows, draft, outcome)
        return outcome

    def _wants_draft(self, drafter: Drafter, batch: Batch, rows: Rows) -> bool:
        """Ask the gate, and start or stop the drafter."""
        drafts = self._started or not drafter.too_late(batch, rows)
        arm = self.gate.choose(len(rows.order), self.statistics.tokens, drafts)
        if arm == 0:
            if self._started:
                self._stop()
            return False
        self._asked += rows.size
        if not self._started:
            with self.statistics.timed("drafter"):
                drafter.start(batch.left(rows.order))
            self.step.inform(drafter.needs)
            self._started = True
        if drafter.lengths:
            drafter.length = drafter.lengths[min(arm, len(drafter.lengths)) - 1]
        return True

    def _repeat(self, drafter: Optional[Drafter], rows: Rows) -> Optional[Outcome]:
        """Several iterations, in which Python has no part; None if there can be none."""
        most = min(1 + self.gate.ahead(), _REPEATED)
        verification = self.step.repeats(rows)
        if verification is None or most == 1 or self._watched:
            return None
        if drafter is None:
            found: Optional[Repeated] = verification.repeat_undrafted(rows, most)
        elif isinstance(verification, CapturedIterations):
            found = drafter.iterate_captured(rows, verification, most)
        else:
            found = drafter.iterate(rows, verification, most)
        if found is None:
            return None
        self.statistics.count(found.drafted, found.kept, found.added)
        self.gate.skip(found.iterations - 1)
        if drafter is not None:
            self._asked += len(found.added) - rows.size  # The first iteration's are counted.
        return found.outcome

    def _stop(self) -> None:
        """Tell the drafter nothing more, until it starts again."""
        self._started = False
        if self.drafter is not None:
            self.drafter.stop()
        self.step.inform(frozenset())

    def _finish(self, rows: Rows, outcome: Outcome, finished: Dict[int, Dict[str, Any]]) -> None:
        """Take finished rows out of the batch, and put their hypotheses into ``finished``."""
        ended, idle = outcome.ended, outcome.idle or [0] * rows.size
        for row, index in enumerate(rows.order):
            if ended[row]:
                hypothesis: Dict[str, Any] = dict(rows.hypothesis(row))
                hypothesis["steps"] = rows.steps - idle[row]
                finished[index] = hypothesis
                if self.drafter is not None:
                    self.drafter.ended(hypothesis["tokens"])
        unfinished = [row for row, end in enumerate(ended) if not end]
        kept = rows.select(unfinished)
        if kept is not None:
            self.step.select(kept)
            if self.drafter is not None and self._started:
                self.drafter.select(kept)


def _verifies_prefix(batch: Batch) -> bool:
    """Whether a batch is faster if its prefix is verified at once, and not step by step."""
    prefix = batch.constraints.prefix
    return prefix is not None and batch.size == 1 and prefix.size(1) >= _LONG_PREFIX


def _remember(history: List[List[Tensor]], rows: Rows, draft: Draft, outcome: Outcome) -> None:
    """Store the draft and what was added, row by row (only when asked for)."""
    for row, index in enumerate(rows.order):
        end = rows.host_lengths[row] + 1
        history[index].append(draft.tokens[row, : outcome.drafted[row]].clone())
        history[index].append(rows.inputs[row, end - outcome.added[row] : end].clone())
