"""Iterations that follow one another without the host, each of them one CUDA graph.

Tokens, lengths and drafts stay on the device. While it does an iteration, the host has queued the
next one, and reads how the one before turned out. A row that has ended adds nothing, until the
host takes it out.
"""

import time
from typing import Callable, Hashable, List, NamedTuple, Optional, Protocol, Tuple

from torch import Tensor

from ..engine.barred import Barred
from ..engine.graphs.capture import Replayed
from ..engine.graphs.layers import run_new
from ..engine.graphs.tensors import GRAIN, StaticTensors, rounded
from ..engine.weights import check_deferred
from .acceptance import Emission, Rule, judge, judge_best
from .constraints import Constraints
from .judge_cuda import judge_on
from .native_verification import Repeated
from .state import Draft, HostTokens, Outcome, Rows
from .static_rows import ADDED, AHEAD, DRAFTED, ENDED, KEPT, LENGTH, TOKENS, StaticRows, Table
from .verifier import Verifier


class CapturedDraft(Protocol):
    """Drafts on the device.

    Attributes:
        tokens: k, how many are drafted for each row.
        longest: tokens that a row may have when it is drafted for; None: any number.
    """

    tokens: int
    longest: Optional[int]

    def begin(self, rows: StaticRows) -> None:
        """Begin with these rows, the last of which may be too many."""

    def prepare(self, longest: int) -> Hashable:
        """Get ready for rows of at most so many tokens.

        Returns:
            what the work depends on, with the serial numbers of tensors that it reads.
        """

    def draft(self, rows: StaticRows) -> Draft:
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
        self.verifier, self.engine, self._rule = verifier, verifier.decoder, rule
        self._judge = judge_on(self.engine.device)

    @property
    def writes_outcomes(self) -> bool:
        """Whether a kernel writes where the host reads; else a table is copied."""
        return self._rule.exact and self._judge is not None

    def fits(self, rows: Rows) -> bool:
        """Whether nothing is drawn or forced. A minimum length may bind."""
        constraints = rows.constraints
        forced = constraints.prefix is not None and rows.shortest < constraints.prefix.size(1)
        return rows.sampler is None and constraints.unk_penalty == 0 and not forced

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
        if not run.possible:
            return None
        found = run.iterate(most)
        self.verifier.statistics.seconds["verifier"] += time.perf_counter() - begin
        return found

    def key(self, constraints: Constraints) -> Hashable:
        """What :meth:`work` depends on besides its other arguments."""
        symbols = constraints.pad, constraints.eos
        return self._rule, self.verifier.temperature, constraints.min_len, *symbols

    def work(
        self,
        tensors: StaticTensors,
        rows: StaticRows,
        visible: int,
        constraints: Constraints,
        early: bool,
        draft: Draft,
    ) -> None:
        """Verify drafts, and append what stands, as operators that may be captured.

        Args:
            tensors: the verifier's batch.
            rows: whose tokens are changed.
            visible: slots of the cache that are looked at.
            constraints: of the batch.
            early: whether a row may have fewer tokens than it must.
            draft: m tokens a row.
        """
        engine, lengths = self.engine, rows.lengths
        embedded = engine.embedding.of_draft(rows.inputs, draft.tokens, lengths)
        states = run_new(engine, tensors, embedded, lengths, visible)

        def steps() -> Tensor:
            return lengths.unsqueeze(1) + tensors.slots[: embedded.size(1)]

        barred = Barred(constraints.eos, steps(), constraints.min_len) if early else None
        if not self._rule.exact:
            emission = self._judged(states, draft, constraints, barred)
            rows.append(emission, draft.lengths, steps())
            return
        best, scored = engine.projection.best_of(
            states, self.verifier.temperature, constraints.pad, barred
        )
        if self._judge is not None:
            self._judge.append(rows, best, scored, draft, constraints.eos)
        else:
            rows.append(judge_best(best, scored, draft, constraints.eos), draft.lengths, steps())

    def _judged(
        self, states: Tensor, draft: Draft, constraints: Constraints, barred: Optional[Barred]
    ) -> Emission:
        """What states make of drafts."""
        scores = self.engine.projection.scores(states, self.verifier.temperature, constraints.pad)
        if barred is not None:
            barred.bar(scores.values)
        return judge(scores, draft, self._rule, constraints.eos)


class _Ready(NamedTuple):
    """An iteration that can begin.

    Attributes:
        bound: tokens that rows may have when it does.
        early: whether a row may have fewer tokens than it must.
        begin: begins it.
    """

    bound: int
    early: bool
    begin: Callable[[], None]


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
        self._static: StaticRows = self._tensors.calls.get(
            ("static rows", count), lambda: StaticRows(self._tensors, count)
        )
        self._outcomes = self._static.outcomes(self._width)
        self._shortest, self._longest = rows.shortest, rows.longest
        self._done, self._left, self._idle = 0, rows.size, [0] * rows.size
        # Drafted, kept and added: see `Repeated`.
        self._counts: Tuple[List[int], List[int], List[int]] = [], [], []
        self._new = [HostTokens([], []) for _ in range(rows.size)]
        self._last: List[List[int]] = [[]] * rows.size  # of each row its last outcome
        self._ready: Optional[_Ready] = None

    def _with_room(self, longest: int) -> Tuple[StaticTensors, int]:
        """The verifier's tensors, and the slots that are looked at."""
        room: Tuple[StaticTensors, int] = self._state.with_room(
            longest - self._state.longest + self._width
        )
        return room

    @property
    def possible(self) -> bool:
        """Whether no row is too near to its limit for an iteration."""
        return self._longest <= self._most_tokens()

    def _most_tokens(self) -> int:
        """Tokens of a row with which an iteration may begin."""
        room = self._rows.constraints.max_len - self._width
        limit = None if self._drafter is None else self._drafter.longest
        return room if limit is None else min(room, limit)

    def iterate(self, most: int) -> Repeated:
        """So many iterations at most."""
        self._static.read(self._rows)
        if self._drafter is not None:
            self._drafter.begin(self._static)
        host, queued = self._outcomes.host, 0
        limit = min(self._most_tokens(), self._tensors.sizes.capacity - self._width)
        while queued < most and 2 * self._left > self._rows.size:
            # Each iteration that is not read yet may have added `width` tokens.
            bound = self._longest + len(host) * self._width
            if bound > limit and len(host) == 0:
                break
            if bound <= limit:
                self._prepare(bound, limit)  # while the device works on what is queued
                if len(host) <= AHEAD:
                    self._queue()
                    queued += 1
                    continue
            self._look()
        while len(host) > 0 and self._left > 0:
            self._look()
        host.clear()  # An iteration after the end of the last row: nobody waits for it.
        return self._finish()

    def _prepare(self, bound: int, limit: int) -> None:
        """Get ready for an iteration of rows with at most ``bound`` tokens, or with a few more.

        Args:
            bound: see above.
            limit: no row may have more.
        """
        constraints = self._rows.constraints
        # Each iteration adds a token to each row that has not ended.
        early = self._shortest < constraints.min_len
        ready = self._ready
        if ready is not None and bound <= ready.bound and early == ready.early:
            return
        iterations, static, drafter = self._iterations, self._static, self._drafter
        # Those behind it, which look at no more slots, need nothing else.
        bound = min(limit, rounded(bound + self._width, GRAIN) - self._width)
        tensors, visible = self._with_room(bound)
        depends: Hashable = None if drafter is None else drafter.prepare(bound)
        vectors = static.lengths.size(0) * self._width
        visible = iterations.engine.slots_seen(vectors, tensors, visible)
        table = iterations.engine.embedding.reach(bound, self._width)
        fixed = iterations.key(constraints), static, visible, self._width, table, early
        replayed = tensors.calls.get(
            ("iteration", *fixed, depends), lambda: Replayed(tensors.graphs)
        )

        def work() -> None:
            draft = static.empty_draft() if drafter is None else drafter.draft(static)
            iterations.work(tensors, static, visible, constraints, early, draft)

        self._ready = _Ready(bound, early, lambda: replayed(work))

    def _queue(self) -> None:
        """Begin the iteration that is prepared."""
        assert self._ready is not None
        self._shortest += 1
        self._ready.begin()
        outcomes = self._outcomes
        outcomes.host.push(None if self._iterations.writes_outcomes else outcomes.table)

    def _look(self) -> None:
        """Read how the oldest unread iteration turned out: an iteration's one wait."""
        if self._done == 0:
            check_deferred()  # The device has something to do.
        table: Table = self._outcomes.host.pop()[: self._rows.size].tolist()
        self._done += 1
        self._longest = max(row[LENGTH] for row in table)
        drafted, kept, added = self._counts
        for number, row in enumerate(table):
            if row[ADDED] == 0:  # It had ended before.
                self._idle[number] += 1
                continue
            self._last[number] = row
            self._left -= row[ENDED]
            self._outcomes.add(row, self._new[number])
            drafted.append(row[DRAFTED])
            kept.append(row[KEPT])
            added.append(row[ADDED])

    def _finish(self) -> Repeated:
        """Let the rows have what was done."""
        rows, new = self._rows, self._new
        lengths, drafted, kept, added, ended = ([*each] for each in [*zip(*self._last)][:TOKENS])
        if not all(ended) or not rows.on_host:
            self._static.write(rows, self._longest)
        rows.sync_lengths(lengths, [each.tokens for each in new], self._done, new)
        outcome = Outcome(drafted, kept, added, ended, idle=self._idle)
        return Repeated(self._done, *self._counts, outcome)
