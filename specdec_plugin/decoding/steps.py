"""The step of an iteration: it judges a draft, and appends what stands of it.

There are two. One lets the verifier and a rule judge, and the other accepts every draft.
"""

from abc import ABC, abstractmethod
from typing import Any, Dict, FrozenSet, List, Optional, Union

import torch
from torch import Tensor

from ..engine import Backend
from ..engine.free_memory import HEAP
from ..engine.output_projection import Scores
from .acceptance import Emission, Rule, judge
from .captured_iterations import CapturedIterations
from .captured_judge import CapturedJudge
from .native_verification import NativeVerification
from .preference import Preference, most_preferred
from .queue import Queue
from .state import Batch, Draft, Outcome, Rows
from .verifier import Verifier


class Step(ABC):
    """What the loop asks to judge drafts. Only a batch that is verified needs most of it.

    Attributes:
        verifies: whether a model judges, so that a prefix is judged as a draft is.
        exact: whether the output is that of greedy decoding, whatever is drafted.
        captured: whether iterations may follow one another without the host.
    """

    verifies = exact = captured = False

    def inform(self, needs: FrozenSet[str]) -> None:  # noqa: B027 - some tell nothing
        """Tell in each outcome what a drafter needs; see :class:`.drafter.Drafter`."""

    def refresh(self) -> None:  # noqa: B027 - some have no weights
        """Pack weights again where they have changed."""

    def start(self, batch: Batch) -> None:  # noqa: B027
        """Begin a batch, after :meth:`refresh`."""

    def end(self) -> None:  # noqa: B027
        """Let go of a batch, which may take much memory."""

    def queues(self) -> bool:
        """Whether the kernels can decode a batch in one call, without drafts."""
        return False

    def queue(self, batch: Batch) -> List[Dict[str, Any]]:
        """Decode such a batch, where it :meth:`queues`; see :meth:`.queue.Queue.run`."""
        raise NotImplementedError(f"{type(self).__name__} never queues, and tells so")

    def forget_queue(self) -> None:  # noqa: B027
        """Begin the next queue anew.

        Its caches would keep the pages of the longest sentence that each row ever had.
        """

    def free_memory(self, queued: bool) -> None:  # noqa: B027
        """Free what only one of the two ways to decode needs, between sentences.

        Args:
            queued: a queue comes next, and no drafts; or else drafts, and no queue.
        """

    @abstractmethod
    def take(self, rows: Rows, draft: Draft) -> Outcome:
        """Append to each row what stands of its draft."""

    def repeats(self, rows: Rows) -> Union[NativeVerification, CapturedIterations, None]:
        """What verifies again and again without Python, if anything may."""
        return None

    def keep(self, rows: Rows) -> None:  # noqa: B027
        """Roll the caches back to what was accepted."""

    def select(self, rows: Tensor) -> None:  # noqa: B027
        """Continue with these rows: (rows,) indices into the current ones."""


class VerifiedStep(Step):
    """Accept what the verifier and the rule agree with, and add the verifier's next token.

    Args:
        verifier: what is accelerated.
        rule: which drafted tokens may stand.
        backend: who verifies; None: whoever runs the verifier.
        preference: which tokens are preferred; None: those of greatest probability are chosen.
        workers: sentences are decoded without drafts by so many at once; 0: by one for each thread.
    """

    verifies = True

    def __init__(
        self,
        verifier: Verifier,
        rule: Rule,
        backend: Optional[Backend] = None,
        preference: Optional[Preference] = None,
        workers: int = 0,
    ) -> None:
        self.verifier = verifier
        self.rule = rule
        self.exact = rule.exact
        self.preference = preference
        self._queue: Optional[Queue] = None
        self._workers = workers
        self._queued = True  # what `free_memory` was told last
        self._native: Optional[NativeVerification] = None
        if NativeVerification.unsupported(verifier, backend) is None:
            self._native = NativeVerification(verifier, rule, preference)
        self._judge: Optional[CapturedJudge] = None
        self._captured: Optional[CapturedIterations] = None
        if CapturedJudge.supports(verifier, preference):
            self._judge = CapturedJudge(verifier, rule)
            self._captured = CapturedIterations(verifier, rule)
        self.captured = self._captured is not None
        self.inform(frozenset())

    def inform(self, needs: FrozenSet[str]) -> None:
        self._needs = needs
        if self._native is not None:
            self._native.inform(needs)

    def refresh(self) -> None:
        self.verifier.refresh()

    def start(self, batch: Batch) -> None:
        self.verifier.start(batch)
        if self.preference is not None:
            self.preference.start(batch)
        if self._native is not None:
            self._native.start()

    def end(self) -> None:
        self.verifier.end()

    def queues(self) -> bool:
        return self._native is not None and self._native.ready and self.preference is None

    def queue(self, batch: Batch) -> List[Dict[str, Any]]:
        assert self._native is not None
        self._queue = self._queue or Queue(self.verifier, self._native, self._workers)
        return self._queue.run(batch)

    def forget_queue(self) -> None:
        self._queue = None

    def free_memory(self, queued: bool) -> None:
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
        scores = self.verifier.scores(fed, constraints.pad)
        constraints.apply(
            scores.values, rows.lengths, rows.shortest, rows.longest, scores.normalisers
        )
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
        if self._native is not None and self._native.ready:
            return self._native
        if self._captured is not None and self._captured.fits(rows):
            return self._captured
        return None

    def keep(self, rows: Rows) -> None:
        self.verifier.keep(rows)

    def select(self, rows: Tensor) -> None:
        self.verifier.select(rows)
        if self.preference is not None:
            self.preference.select(rows)


class UnverifiedStep(Step):
    """Accept every draft: the drafter alone (``--decoding nat``)."""

    def take(self, rows: Rows, draft: Draft) -> Outcome:
        """Append the drafts, within the limits, each up to an end of sentence."""
        draft = draft.within(rows, rows.constraints.max_len + 1)
        assert draft.scores is not None
        ends = draft.tokens.eq(rows.constraints.eos) & draft.real()
        ended = ends.any(1)
        counts = torch.where(ended, ends.int().argmax(1) + 1, draft.lengths)
        emission = Emission(draft.tokens, draft.scores, counts, counts, ended.long(), draft.tokens)
        return settle(rows, draft, emission)


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
