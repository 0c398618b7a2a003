"""Iterations that follow one another without the host, each of them one CUDA graph.

Tokens, lengths and drafts stay on the device. While it does an iteration, the host has queued the
next one, and reads how the one before turned out. A row that has ended adds nothing, until the
host takes it out.
"""

import math
import time
from typing import Hashable, List, Optional, Protocol, Sequence, Tuple

import torch
from torch import Tensor

from ..engine import CachedDecoder
from ..engine.graphs.capture import Replayed
from ..engine.graphs.layers import run_new
from ..engine.graphs.tables import Tables
from ..engine.graphs.tensors import StaticTensors, rounded
from .acceptance import Emission, Rule, judge, judge_best
from .constraints import Constraints
from .judge_cuda import judge_on
from .native_verification import Repeated
from .state import Draft, Outcome, Rows
from .verifier import Verifier

#: Iterations that are queued before the host reads the oldest one's outcome.
_AHEAD = 1
#: Few sentences end with a smaller share of the tokens that the source has.
_UNENDED = 0.75
#: Columns of an outcome.
_LENGTH, _DRAFTED, _KEPT, _ADDED, _ENDED = range(5)
_COUNTED = _DRAFTED, _KEPT, _ADDED


class Lines:
    """The tokens of some rows, in tensors that stay where they are.

    Args:
        tensors: of the verifier's batch.
        rows: how many, rounded up.

    Attributes:
        inputs: (rows, capacity + 1) what the decoder is fed; see :class:`.state.Rows`.
        scores: (rows, capacity + 1) log-probabilities of the chosen tokens.
        lengths: (rows,) long, how many tokens are chosen.
        alive: (rows,) long, 0 where a row has ended, or is one too many.
        held: (rows,) long, tokens in the cache of a drafter that has one of its own.
        table: (rows, 5) long, how the last iteration turned out.
        host: copies of it.
    """

    def __init__(self, tensors: StaticTensors, rows: int) -> None:
        lengths, width = tensors.lengths, tensors.sizes.capacity + 1
        self.inputs = lengths.new_zeros(rows, width)
        self.scores = torch.zeros(rows, width, device=lengths.device)
        self.lengths, self.alive = lengths.new_zeros(rows), lengths.new_zeros(rows)
        self.held = lengths.new_zeros(rows)
        self.table = lengths.new_zeros(rows, 5)
        self.host = Tables(self.table, _AHEAD + 1)

    def read(self, rows: Rows) -> None:
        """Continue with rows."""
        while len(self.host) > 0:  # of a run that was interrupted
            self.host.pop()
        count, chosen = rows.size, rows.longest
        for own, theirs, width in (
            (self.inputs, rows.inputs, chosen + 1),
            (self.scores, rows.scores, chosen),
        ):
            own[:count, :width].copy_(theirs[:, :width])
        self.lengths[:count].copy_(rows.lengths)
        self.alive[:count].fill_(1)
        self.lengths[count:].zero_()
        self.alive[count:].zero_()

    def write(self, rows: Rows, longest: int) -> None:
        """Let the rows have what was chosen; the longest one has so many tokens."""
        count = rows.size
        rows.inputs = self.inputs[:count, : longest + 1].clone()
        rows.scores = self.scores[:count, : longest + 1].clone()
        rows.lengths = self.lengths[:count].clone()

    def newest(self) -> Tensor:
        """(rows, 1) the newest token of each row."""
        return self.inputs.gather(1, self.lengths.unsqueeze(1))

    def empty_draft(self) -> Draft:
        """A draft of no tokens: (rows, 0)."""
        return Draft(self.inputs[:, :0], torch.zeros_like(self.lengths))

    def append(self, emission: Emission, drafted: Tensor, steps: Tensor) -> None:
        """Add what is emitted to the rows that have not ended, and note it in the table.

        Args:
            emission: of m + 1 tokens a row.
            drafted: (rows,) tokens that were drafted.
            steps: (rows, m + 1) numbers of the positions, 0 for a row's first token.
        """
        # Behind its last token, a row may have any.
        self.scores.scatter_(1, steps, emission.scores)
        self.inputs.scatter_(1, steps + 1, emission.tokens)
        facts = torch.stack([drafted, emission.kept, emission.counts, emission.ended], 1)
        facts *= self.alive.unsqueeze(1)
        self.lengths += facts[:, _ADDED - 1]
        self.alive -= facts[:, _ENDED - 1]
        self.table[:, :1].copy_(self.lengths.unsqueeze(1))
        self.table[:, 1:].copy_(facts)


class CapturedDraft(Protocol):
    """Drafts on the device.

    Attributes:
        tokens: k, how many are drafted for each row.
        longest: tokens that a row may have when it is drafted for; None: any number.
    """

    tokens: int
    longest: Optional[int]

    def begin(self, lines: Lines) -> None:
        """Begin with the rows of ``lines``, some of whose last rows may be too many."""

    def prepare(self, longest: int) -> Hashable:
        """Get ready for rows of at most so many tokens.

        Returns:
            what the work depends on, with the serial numbers of tensors that it reads.
        """

    def draft(self, lines: Lines) -> Draft:
        """Drafts of k tokens a row, as operators that may be captured."""


class CapturedIterations:
    """Verifies, and appends what stands, again and again.

    Args:
        verifier: the model, which :meth:`.CapturedJudge.supports` allows.
        rule: which drafted tokens may stand.

    Attributes:
        verifier: the same.
        engine: its decoder.
    """

    def __init__(self, verifier: Verifier, rule: Rule) -> None:
        engine = verifier.engines[0]
        assert isinstance(engine, CachedDecoder)
        self.verifier, self.engine, self._rule = verifier, engine, rule
        self._judge = judge_on(engine.device)

    def fits(self, rows: Rows) -> bool:
        """Whether nothing is drawn or forced. A minimum length may bind."""
        rules = rows.constraints
        forced = rules.prefix is not None and rows.shortest < rules.prefix.size(1)
        return rows.sampler is None and rules.unk_penalty == 0 and not forced

    def repeat_undrafted(self, rows: Rows, most: int) -> Optional[Repeated]:
        """:meth:`repeat` without drafts."""
        return self.repeat(rows, most)

    def repeat(
        self, rows: Rows, most: int, drafter: Optional[CapturedDraft] = None
    ) -> Optional[Repeated]:
        """Iterations until half of the rows have ended.

        Args:
            rows: which :meth:`fits` allows.
            most: iterations, at most.
            drafter: who drafts in each of them; None: nobody.

        Returns:
            what became of them; None where not even one is possible, because a row is too near to
            its limit.
        """
        begin = time.perf_counter()
        run = _Run(self, rows, drafter)
        if not run.possible(rows.longest):
            return None
        found = run.iterate(most)
        self.verifier.statistics.seconds["verifier"] += time.perf_counter() - begin
        return found

    def key(self, rules: Constraints) -> Hashable:
        """What :meth:`work` depends on besides its other arguments."""
        return self._rule, self.verifier.temperature, rules.min_len, rules.pad, rules.eos

    def work(
        self,
        tensors: StaticTensors,
        lines: Lines,
        visible: int,
        rules: Constraints,
        early: bool,
        draft: Draft,
    ) -> None:
        """Verify drafts, and append what stands, as operators that may be captured.

        Args:
            tensors: the verifier's batch.
            lines: the rows' tokens, which are changed.
            visible: slots of the cache that are looked at.
            rules: of the batch.
            early: whether a row may have fewer tokens than it must.
            draft: m tokens a row.
        """
        engine, lengths = self.engine, lines.lengths
        embedded = engine.embed_draft(lines.inputs, draft.tokens, lengths)
        states = run_new(engine, tensors, embedded, lengths, visible)
        exact = self._rule.exact and not early
        if exact and self._judge is not None:
            best, scored = self._best_of(states, rules)
            self._judge.append(lines, best, scored, draft, rules.eos)
            return
        steps = lengths.unsqueeze(1) + tensors.slots[: embedded.size(1)]
        if exact:
            emission = judge_best(*self._best_of(states, rules), draft, rules.eos)
        else:
            emission = self._judged(states, draft, rules, steps if early else None)
        lines.append(emission, draft.lengths, steps)

    def _best_of(self, states: Tensor, rules: Constraints) -> Tuple[Tensor, Tensor]:
        """The best tokens, and their log-probabilities."""
        return self.engine.projection.best_of(states, self.verifier.temperature, rules.pad)

    def _judged(
        self, states: Tensor, draft: Draft, rules: Constraints, early: Optional[Tensor]
    ) -> Emission:
        """What states make of drafts; ``early``: the steps, where some are below the minimum."""
        scores = self.engine.projection.scores(states, self.verifier.temperature, rules.pad)
        if early is not None:
            scores.values[..., rules.eos].masked_fill_(early < rules.min_len, -math.inf)
        return judge(scores, draft, self._rule, rules.eos)


class _Run:
    """Some iterations of the same rows.

    Args:
        iterations: what is done in each.
        rows: what is decoded.
        drafter: who drafts, or None.
    """

    def __init__(
        self, iterations: CapturedIterations, rows: Rows, drafter: Optional[CapturedDraft]
    ) -> None:
        self._iterations, self._rows, self._drafter = iterations, rows, drafter
        self._width = 1 if drafter is None else drafter.tokens + 1
        self._state = iterations.verifier.states[0]
        self._tensors, _ = self._with_room(rows.longest)
        count = rounded(rows.size)
        self._lines: Lines = self._tensors.calls.get(
            ("lines", count), lambda: Lines(self._tensors, count)
        )
        self._shortest, self._longest = rows.shortest, rows.longest
        self._counts: List[List[List[int]]] = []  # the table of each iteration
        self._left, self._idle = rows.size, [0] * rows.size

    def _with_room(self, longest: int) -> Tuple[StaticTensors, int]:
        """The verifier's tensors, and the slots that are looked at."""
        room: Tuple[StaticTensors, int] = self._state.with_room(
            longest - self._state.longest + self._width
        )
        return room

    def possible(self, longest: int) -> bool:
        """Whether an iteration may begin with rows of so many tokens at most."""
        limit = None if self._drafter is None else self._drafter.longest
        within = longest + self._width <= self._rows.constraints.max_len
        return within and (limit is None or longest <= limit)

    def iterate(self, most: int) -> Repeated:
        """So many iterations at most."""
        self._lines.read(self._rows)
        if self._drafter is not None:
            self._drafter.begin(self._lines)
        host, queued = self._lines.host, 0
        while queued < most and 2 * self._left > self._rows.size:
            # Nobody knows yet what is unread: each iteration adds `width` tokens at most.
            bound = self._longest + len(host) * self._width
            fits = self.possible(bound) and bound + self._width <= self._tensors.sizes.capacity
            if fits and (len(host) == 0 or self._likely(bound)):
                self._queue(bound)
                queued += 1
                if len(host) <= _AHEAD:
                    continue
            elif len(host) == 0:
                break
            self._look()
        while len(host) > 0:
            self._look()
        return self._finish()

    def _likely(self, bound: int) -> bool:
        """Whether a row that may have so many tokens is likely to have no end yet.

        An iteration after the end of a single row is wasted. Without a draft, that costs little
        more than a wait for the outcome before. With one, it costs several times as much.
        """
        if self._drafter is None or self._rows.size > 1:
            return True
        return bound <= _UNENDED * self._iterations.verifier.source_length

    def _queue(self, bound: int) -> None:
        """One iteration of rows with at most so many tokens."""
        iterations, lines, drafter = self._iterations, self._lines, self._drafter
        rules = self._rows.constraints
        # Each iteration adds a token to each row that has not ended.
        early = self._shortest < rules.min_len
        self._shortest += 1
        tensors, visible = self._with_room(bound)
        depends: Hashable = None if drafter is None else drafter.prepare(bound)
        vectors = lines.lengths.size(0) * self._width
        visible = iterations.engine.slots_seen(vectors, tensors, visible)
        table = iterations.engine.reach(bound, self._width)
        fixed = iterations.key(rules), lines, visible, self._width, table, early
        replayed = tensors.calls.get(
            ("iteration", *fixed, depends), lambda: Replayed(tensors.graphs)
        )

        def work() -> None:
            draft = lines.empty_draft() if drafter is None else drafter.draft(lines)
            iterations.work(tensors, lines, visible, rules, early, draft)

        replayed(work)
        lines.host.push(lines.table)

    def _look(self) -> None:
        """Read how the oldest unread iteration turned out: an iteration's one wait."""
        table = self._lines.host.pop()[: self._rows.size].tolist()
        self._counts.append(table)
        self._longest = max(row[_LENGTH] for row in table)
        self._left -= sum(row[_ENDED] for row in table)
        for number, row in enumerate(table):
            self._idle[number] += row[_ADDED] == 0

    def _finish(self) -> Repeated:
        """Let the rows have what was done. The host waits once more for all iterations."""
        rows = self._rows
        # Of each row its last iteration before it ended.
        last = [next(row for row in reversed(each) if row[_ADDED]) for each in zip(*self._counts)]
        self._lines.write(rows, self._longest)
        begun, tokens = rows.host_lengths, rows.inputs.tolist()
        added = [line[begin + 1 :] for line, begin in zip(tokens, begun)]
        rows.sync_lengths([row[_LENGTH] for row in last], added, len(self._counts))
        drafted, kept, new = ([row[column] for row in last] for column in _COUNTED)
        ended = [sum(each) for each in zip(*map(_ended, self._counts))]
        outcome = Outcome(drafted, kept, new, ended, idle=self._idle)
        return Repeated([_living(table) for table in self._counts], outcome)


def _ended(table: Sequence[Sequence[int]]) -> List[int]:
    """By row, 1 where it ended in an iteration."""
    return [row[_ENDED] for row in table]


def _living(table: Sequence[Sequence[int]]) -> List[List[int]]:
    """Tokens drafted, kept and added by each row that had not ended before."""
    rows = [row for row in table if row[_ADDED] > 0]
    return [[row[column] for row in rows] for column in _COUNTED]
