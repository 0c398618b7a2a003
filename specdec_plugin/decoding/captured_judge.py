"""Scoring and judging of drafts in one CUDA graph, where no rule of fairseq is in the way."""

from typing import Optional, Sequence

from torch import Tensor

from ..engine.graphs.rows_function import RowsFunction
from .acceptance import Emission, Rule, judge
from .preference import Preference
from .state import Draft, Rows
from .verifier import Verifier


class CapturedJudge:
    """Gives what the decoder's states make of drafts: some thirty operators on a GPU.

    Args:
        verifier: the model, which :meth:`supports` allows.
        rule: which drafted tokens may stand.
    """

    def __init__(self, verifier: Verifier, rule: Rule) -> None:
        self._verifier, self._rule, engine = verifier, rule, verifier.decoder
        self._engine, self._projection = engine, engine.projection
        self._run = RowsFunction(engine.device)
        self._version = engine.projection.version

    @staticmethod
    def supports(verifier: Verifier, preference: Optional[Preference]) -> bool:
        """Whether one model's best tokens are chosen, on tensors that stay where they are."""
        return verifier.static and len(verifier.engines) == 1 and preference is None

    def fits(self, rows: Rows, new: int) -> bool:
        """Whether no rule may apply to ``new`` tokens of each row, and none is drawn."""
        constraints = rows.constraints
        binds = constraints.unk_penalty != 0 or constraints.bind(rows.shortest, rows.longest, new)
        return rows.sampler is None and not binds

    def emission(self, fed: Tensor, draft: Draft, rows: Rows) -> Emission:
        """What is added to each row; the next call overwrites it.

        Args:
            fed: (rows, m + 1) the newest token of each row and its draft.
            draft: m tokens a row.
            rows: the rows.
        """
        verifier, constraints = self._verifier, rows.constraints
        states = verifier.read(fed)
        if self._version != self._projection.version:  # What was captured reads the old weights.
            self._run = RowsFunction(self._engine.device)
            self._version = self._projection.version

        def judged(states: Tensor, tokens: Tensor, lengths: Tensor) -> Sequence[Tensor]:
            scores = self._projection.scores(states, verifier.temperature, constraints.pad)
            return judge(scores, Draft(tokens, lengths), self._rule, constraints.eos)

        with verifier.statistics.timed("projection"):
            key = constraints.pad, constraints.eos
            return Emission(*self._run(key, judged, states, draft.tokens, draft.lengths))
