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
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Union

import torch
from torch import Tensor

from ..engine import Backend
from ..engine.free_memory import HEAP, LARGE
from ..engine.output_projection import Scores
from ..engine.weights import look_now
from .acceptance import Emission, Rule, judge
from .captured_iterations import CapturedIterations
from .captured_judge import CapturedJudge
from .drafter import Drafter
from .guard import FixedGate, Gate
from .native_verification import NativeVerification, Repeated
from .preference import Preference, most_preferred
from .queue import Queue
from .schedule import Schedule
from .state import Batch, Draft, Outcome, Rows
from .statistics import Statistics
from .verifier import Verifier


class VerifiedStep:
    """Accept what the verifier and the rule agree with, and add the verifier's next token.

    Args:
        verifier: what is accelerated.
        rule: which drafted tokens may stand.
        backend: who verifies; None: whoever runs the verifier.
        preference: which tokens are preferred; None: those of greatest probability are chosen.

    Attributes:
        exact: whether the output is that of greedy decoding, whatever is drafted.
    """

    def __init__(
        self,
        verifier: Verifier,
        rule: Rule,
        backend: Optional[Backend] = None,
        preference: Optional[Preference] = None,
    ) -> None:
        self.verifier = verifier
        self.rule = rule
        self.exact = rule.exact
        self.preference = preference
        self._queue: Optional[Queue] = None
        self._queued = True  # what `free_memory` was told last
        self._native: Optional[NativeVerification] = None
        if NativeVerification.supports(verifier, backend) is None:
            self._native = NativeVerification(verifier, rule, preference)
        self._judge: Optional[CapturedJudge] = None
        self._captured: Optional[CapturedIterations] = None
        if CapturedJudge.supports(verifier, preference):
            self._judge = CapturedJudge(verifier, rule)
            self._captured = CapturedIterations(verifier, rule)
        self.inform(frozenset())

    @property
    def captured(self) -> bool:
        """Whether iterations may follow one another without the host."""
        return self._captured is not None

    def inform(self, needs: FrozenSet[str]) -> None:
        """Tell in each outcome what a drafter needs; see :class:`.drafter.Drafter`."""
        self._needs = needs
        if self._native is not None:
            self._native.inform(needs)

    def refresh(self) -> None:
        """Pack weights again where they have changed."""
        self.verifier.refresh()

    def start(self, batch: Batch) -> None:
        """Begin a batch, after :meth:`refresh`."""
        self.verifier.start(batch)
        if self.preference is not None:
            self.preference.start(batch)
        if self._native is not None:
            self._native.start()

    def end(self) -> None:
        """Let go of a batch, which may take much memory."""
        self.verifier.end()

    def queues(self) -> bool:
        """Whether the kernels can decode a batch in one call, without drafts."""
        return self._native is not None and self._native.ready and self.preference is None

    def queue(self, batch: Batch, workers: int) -> List[Dict[str, Any]]:
        """Decode such a batch; see :meth:`.queue.Queue.run`."""
        assert self._native is not None
        self._queue = self._queue or Queue(self.verifier, self._native, workers)
        return self._queue.run(batch)

    def forget_queue(self) -> None:
        """Begin the next queue anew.

        Its caches would keep the pages of the longest sentence that each row ever had.
        """
        self._queue = None

    def free_memory(self, queued: bool) -> None:
        """Free what only one of the two ways to decode needs, between sentences.

        Args:
            queued: a queue comes next, and no drafts; or else drafts, and no queue.
        """
        if queued == self._queued:
            return
        self._queued = queued
        if not queued:
            self._queue = None
        elif self._native is not None:
            self._native.free_memory()
        HEAP.give_back(now=True)

    def take(self, rows: Rows, draft: Draft) -> Outcome:
        """Append to each row what stands of its draft, and the verifier's next token."""
        if self._native is not None and self._native.ready:
            return self._native.take(rows, draft)
        constraints = rows.constraints
        draft = draft.within(rows, constraints.max_len)
        fed = rows.last()
        if draft.tokens.size(1) > 0:
            fed = torch.cat([fed, draft.tokens], dim=1)
        if self._judge is not None and self._judge.fits(rows, fed.size(1)):
            emission = self._judge.emission(fed, draft, rows)
            return settle(rows, draft, emission, self._needs, self.verifier.hidden)
        with self.verifier.on_one_thread(fed.numel()):
            scores = self.verifier.scores(fed, constraints.pad)
            constraints.apply(scores.values, rows.lengths, rows.shortest, rows.longest)
            best = self._best(rows, draft, scores)
            emission = judge(scores, draft, self.rule, constraints.eos, best)
            return settle(rows, draft, emission, self._needs, self.verifier.hidden)

    def _best(self, rows: Rows, draft: Draft, scores: Scores) -> Tensor:
        """(rows, m + 1) what is chosen behind the chosen tokens and each drafted one."""
        if self.preference is None:
            return rows.best(scores)
        preferred = self.preference.tokens(rows, draft)
        return most_preferred(scores.values, preferred, self.preference.bias)

    def repeats(self, rows: Rows) -> Union[NativeVerification, CapturedIterations, None]:
        """What verifies again and again without Python, if anything may."""
        if self._native is not None and self._native.ready:
            return self._native
        if self._captured is not None and self._captured.fits(rows):
            return self._captured
        return None

    def keep(self, rows: Rows) -> None:
        """Roll the caches back to what was accepted."""
        self.verifier.keep(rows)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows."""
        self.verifier.select(rows)
        if self.preference is not None:
            self.preference.select(rows)


class UnverifiedStep:
    """Accept every draft: the drafter alone (``--decoding nat``)."""

    exact = captured = False

    def inform(self, needs: FrozenSet[str]) -> None:
        """There is no verifier that could tell anything."""

    def refresh(self) -> None:
        """There are no weights."""

    def start(self, batch: Batch) -> None:
        """Nothing to prepare."""

    def take(self, rows: Rows, draft: Draft) -> Outcome:
        """Append the drafts, within the limits, each up to an end of sentence."""
        draft = draft.within(rows, rows.constraints.max_len + 1)
        assert draft.scores is not None
        ends = draft.tokens.eq(rows.constraints.eos) & draft.real()
        ended = ends.any(1)
        counts = torch.where(ended, ends.int().argmax(1) + 1, draft.lengths)
        emission = Emission(draft.tokens, draft.scores, counts, counts, ended.long(), draft.tokens)
        return settle(rows, draft, emission)

    def repeats(self, rows: Rows) -> None:
        """Nothing verifies."""

    def end(self) -> None:
        """Nothing to let go of."""

    def keep(self, rows: Rows) -> None:
        """Nothing to roll back."""

    def select(self, rows: Tensor) -> None:
        """Nothing to keep."""


def settle(
    rows: Rows,
    draft: Draft,
    emission: Emission,
    needs: FrozenSet[str] = frozenset(),
    states: Optional[Tensor] = None,
) -> Outcome:
    """Append what is emitted, and bring the outcome to the host: an iteration's one wait.

    Args:
        rows: the rows.
        draft: m tokens a row.
        emission: what is added to each row.
        needs: what the outcome tells besides the counts.
        states: (rows, m + 1, dim) of the verifier, where ``needs`` holds ``hidden``.
    """
    rows.append(emission.tokens, emission.scores, emission.counts)
    facts = [rows.lengths, draft.lengths, emission.kept, emission.counts, emission.ended]
    if rows.lengths.device.type == "cpu":
        tokens, argmax = [], emission.best
        counts = [each.tolist() for each in facts]
    else:
        table = torch.cat([torch.stack(facts, 1), emission.tokens, emission.best], dim=1).cpu()
        argmax = table[:, -emission.best.size(1) :]
        tokens = table[:, len(facts) :].tolist()
        counts = table[:, : len(facts)].t().tolist()
    lengths, drafted, kept, added, ended = counts
    rows.sync_lengths(lengths, tokens)
    return Outcome(
        drafted,
        kept,
        added,
        ended,
        _drafted_argmax(argmax, drafted) if "argmax" in needs else None,
        _newest(states, emission.counts) if "hidden" in needs else None,
    )


def _drafted_argmax(argmax: Tensor, drafted: List[int]) -> Tensor:
    """(rows, m + 1) the argmax, -1 beyond each row's draft."""
    beyond = torch.arange(argmax.size(1)) > torch.tensor(drafted).unsqueeze(1)
    return argmax.masked_fill(beyond, -1)


def _newest(states: Optional[Tensor], counts: Tensor) -> Optional[Tensor]:
    """(rows, dim) float32, the state that predicted the last of ``counts`` (rows,) new tokens."""
    if states is None:
        return None
    index = (counts - 1).view(-1, 1, 1).expand(-1, 1, states.size(2))
    return states.gather(1, index).squeeze(1).float()


#: Iterations that the kernels do at most before they return to Python.
_REPEATED = 64
#: What it is told: the rows, whose new tokens are their last ones; the draft; what became of it.
Watcher = Callable[[Rows, Draft, Outcome], None]


class DecodingLoop:
    """Decodes batches with one drafter and one way to judge its drafts.

    Args:
        drafter: proposes tokens; None for greedy decoding.
        step: :class:`VerifiedStep` or :class:`UnverifiedStep`.
        statistics: where iterations, acceptance and time are counted.
        keep_history: also return the draft and the outcome of each iteration.
        gate: decides when the drafter is asked; None: always.
        workers: sentences are decoded without drafts by so many at once; 0: by one for each thread.

    Attributes:
        watcher: is told each iteration when it is done, as when tokens are shown while they
            appear; None: nobody. With one, each iteration returns to Python.
    """

    def __init__(
        self,
        drafter: Optional[Drafter],
        step: Any,
        statistics: Statistics,
        keep_history: bool = False,
        gate: Optional[Gate] = None,
        workers: int = 0,
    ) -> None:
        self.drafter = drafter
        self.step = step
        self.statistics = statistics
        self.keep_history = keep_history
        self.gate: Gate = FixedGate() if gate is None else gate
        self._started = False
        self.workers = workers
        fixed = drafter is None or isinstance(self.gate, FixedGate)
        self.schedule: Optional[Schedule] = None if fixed else Schedule(self.gate)
        self._asked = 0  # rows, in the iterations in which there was a draft
        self.watcher: Optional[Watcher] = None

    def decode(self, batch: Batch) -> List[List[Dict[str, Any]]]:
        """Decode a batch.

        Returns:
            for each sentence a list of one hypothesis: ``tokens`` and ``positional_scores``
            (length,), ``steps`` (iterations), and ``history``: (draft, added tokens) of each
            iteration.
        """
        self.step.refresh()
        watched = self.keep_history or self.watcher is not None
        queues = not watched and self.step.exact and self.step.queues()
        self.measured.see(batch.net_input["src_tokens"].size(1))
        begin, found = 0, []
        while begin < batch.size:
            slice_ = self._next(batch.size, batch.size - begin) if queues else batch.size
            end = min(batch.size, begin + (slice_ or batch.size))
            part = batch.left(range(begin, end))
            since, before = time.perf_counter(), self.statistics.tokens
            rests = slice_ > 0 and queues and self.gate.rests(part.size)
            queued = rests or not slice_
            if queues and batch.size >= LARGE:
                self.step.free_memory(queued)
            found += self._queued(part) if queued else self._drafted(part)
            seconds, tokens = time.perf_counter() - since, self.statistics.tokens - before
            if rests:
                self.gate.undrafted(part.size, tokens, seconds)
            if queues and self.schedule is not None and self.schedule.measures:
                self.schedule.record(slice_, batch.size, part.size, tokens, seconds)
            begin = end
        if queues and batch.size >= LARGE:
            self.step.forget_queue()
        self.statistics.sentences += batch.size
        self.statistics.batches += 1
        return [[hypothesis] for hypothesis in found]

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
        found = self.step.queue(batch, self.workers)
        for hypothesis in found:
            hypothesis.update(steps=len(hypothesis["tokens"]), history=[])
            if self.drafter is not None:
                self.drafter.ended(hypothesis["tokens"])
        tokens = sum(len(each["tokens"]) for each in found)
        self.statistics.count_undrafted(tokens, self.drafter is not None)
        return list(found)

    def _drafted(self, batch: Batch) -> List[Dict[str, Any]]:
        """A hypothesis for each sentence, with drafts where the gate lets them."""
        rows = Rows(batch)
        self._history: List[List[Tensor]] = [[] for _ in range(batch.size)]
        finished: List[Optional[Dict[str, Any]]] = [None] * batch.size
        self._stop()
        iterations, self._asked = self.statistics.iterations, 0
        self.step.start(batch)
        self.gate.begin()
        while rows.size > 0:
            outcome = self._iterate(batch, rows)
            if any(outcome.ended):
                self._finish(rows, outcome, finished)
            if rows.size > 0:
                self.step.keep(rows)
        self._stop()
        self.step.end()
        self.gate.end(self.statistics.tokens)
        if self.drafter is not None:
            self.statistics.gated += self.statistics.iterations - iterations - self._asked
        for hypothesis, steps in zip(finished, self._history):
            assert hypothesis is not None
            hypothesis["history"] = steps
        return [hypothesis for hypothesis in finished if hypothesis is not None]

    def _iterate(self, batch: Batch, rows: Rows) -> Outcome:
        """One iteration, or several; the outcome of the last one."""
        prefix = rows.constraints.prefix
        if rows.steps == 0 and prefix is not None and isinstance(self.step, VerifiedStep):
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
        look_now()
        outcome: Outcome = self.step.take(rows, draft)
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
        way = self.gate.way(len(rows.order), self.statistics.tokens)
        if way == 0:
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
            drafter.length = drafter.lengths[min(way, len(drafter.lengths)) - 1]
        return True

    def _repeat(self, drafter: Optional[Drafter], rows: Rows) -> Optional[Outcome]:
        """Several iterations, in which Python has no part; None if there can be none."""
        most = min(1 + self.gate.ahead(), _REPEATED)
        verification = self.step.repeats(rows)
        watched = self.keep_history or self.watcher is not None
        if verification is None or most == 1 or watched:
            return None
        if drafter is None:
            found: Optional[Repeated] = verification.repeat_undrafted(rows, most)
        elif isinstance(verification, CapturedIterations):
            found = drafter.iterate_captured(rows, verification, most)
        else:
            found = drafter.iterate(rows, verification, most)
        if found is None:
            return None
        for drafted, kept, added in found.counts:
            self.statistics.count(drafted, kept, added)
        self.gate.skip(len(found.counts) - 1)
        if drafter is not None:
            self._asked += sum(len(added) for _, _, added in found.counts[1:])
        return found.outcome

    def _stop(self) -> None:
        """Tell the drafter nothing more, until it starts again."""
        self._started = False
        if self.drafter is not None:
            self.drafter.stop()
        self.step.inform(frozenset())

    def _finish(
        self, rows: Rows, outcome: Outcome, finished: List[Optional[Dict[str, Any]]]
    ) -> None:
        """Take finished rows out of the batch."""
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


def _remember(history: List[List[Tensor]], rows: Rows, draft: Draft, outcome: Outcome) -> None:
    """Store the draft and what was added, row by row (only when asked for)."""
    for row, index in enumerate(rows.order):
        end = rows.host_lengths[row] + 1
        history[index].append(draft.tokens[row, : outcome.drafted[row]].clone())
        history[index].append(rows.inputs[row, end - outcome.added[row] : end].clone())
