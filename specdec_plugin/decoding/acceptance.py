"""Which drafted tokens are accepted, given the verifier's scores at each position.

Every rule gets scores whose masks are already applied, so no rule can
accept padding, an early end of sentence, or a token against a forced prefix.
"""

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor

from ..engine.output_projection import Scores
from .state import Draft


class Ranking(NamedTuple):
    """The verifier's scores for a draft of m tokens.

    Attributes:
        scores: (rows, m + 1, …) masked scores; position i is what follows the first i
            drafted tokens.
        best: (rows, m + 1) the most probable token of each position, or the one that is drawn.
        draft: (rows, m) drafted tokens.
        real: (rows, m) false where a row drafted fewer than m tokens.
    """

    scores: Scores
    best: Tensor
    draft: Tensor
    real: Tensor


class Rule(ABC):
    """Decides which drafted tokens may be accepted.

    Attributes:
        exact: whether only the tokens of greedy decoding are, so that drafts change nothing.
    """

    exact: bool = False

    @abstractmethod
    def agrees(self, ranking: Ranking) -> Tensor:
        """(rows, m) true where the drafted token may stand."""

    @abstractmethod
    def describe(self, call: Any) -> None:
        """Tell the kernels the rule: ``call`` is a :class:`.VerifyCall`."""


class TopBeta(Rule):
    """Keep drafted tokens that are the verifier's best, or almost (Xia et al., 2023, eq. 6, 7).

    A drafted token may stand when the verifier ranks it among its β best and
    gives it a log-probability within τ of its best. β = 1 is exact acceptance
    (section 3.2): what greedy decoding would have chosen.

    Args:
        beta: β ≥ 1.
        tolerance: τ ≥ 0 in nats; infinite for plain top-β.
    """

    def __init__(self, beta: int = 1, tolerance: float = math.inf) -> None:
        self.beta = beta
        self.tolerance = tolerance
        self.exact = beta == 1

    def describe(self, call: Any) -> None:
        """β and τ."""
        call.beta, call.tolerance = self.beta, self.tolerance

    def agrees(self, ranking: Ranking) -> Tensor:
        """See :class:`Rule`."""
        exact = (ranking.draft == ranking.best[:, :-1]) & ranking.real
        if self.beta == 1 or ranking.draft.size(1) == 0:
            return exact
        values = ranking.scores.values[:, :-1]
        drafted = values.gather(2, ranking.draft.unsqueeze(2))
        best = values.gather(2, ranking.best[:, :-1].unsqueeze(2))
        ahead = (values > drafted).sum(2)
        drafted, best = drafted.squeeze(2), best.squeeze(2)
        near = (ahead < self.beta) & (best - drafted <= self.tolerance)
        return exact | (near & ranking.real & drafted.isfinite())


class Distance(Rule):
    """Keep drafted numbers that are near the verifier's (Stern et al., 2018, section 5.2).

    For targets whose symbols are numbers, such as the brightness of pixels: a drafted symbol
    may stand when its number is at most ε away from that of the verifier's best symbol. Symbols
    that are no numbers must be the best.

    Args:
        numbers: (vocabulary,) float32, NaN where a symbol is no number.
        epsilon: ε ≥ 0.
    """

    def __init__(self, numbers: Tensor, epsilon: float) -> None:
        self.epsilon = epsilon
        self._for_kernels, self._numbers = numbers, numbers

    def describe(self, call: Any) -> None:
        """The numbers and ε."""
        call.beta, call.epsilon = 1, self.epsilon
        call.numbers = self._for_kernels.data_ptr()

    def agrees(self, ranking: Ranking) -> Tensor:
        """See :class:`Rule`."""
        best = ranking.best[:, :-1]
        if self._numbers.device != best.device:
            self._numbers = self._numbers.to(best.device)
        apart = (self._numbers[ranking.draft] - self._numbers[best]).abs()
        near = (apart <= self.epsilon) & allowed(ranking)
        return ((ranking.draft == best) | near) & ranking.real


class MinBlock(Rule):
    """Add ℓ tokens an iteration at least, right or wrong (Stern et al., 2018, section 5.3).

    The first ℓ - 1 drafted tokens stand, and the verifier's own next token makes ℓ; another rule
    decides about the rest. Every mask holds. Where a drafted token or the verifier's best ends the
    sentence, the other rule decides.

    Args:
        rule: the other rule.
        min_block: ℓ ≥ 1.
        eos: ends a sentence.
    """

    def __init__(self, rule: Rule, min_block: int, eos: int) -> None:
        self.rule = rule
        self.min_block = min_block
        self.eos = eos

    def describe(self, call: Any) -> None:
        """The other rule and ℓ."""
        self.rule.describe(call)
        call.min_block = self.min_block

    def agrees(self, ranking: Ranking) -> Tensor:
        """See :class:`Rule`."""
        unended = ranking.draft.ne(self.eos) & ranking.best[:, :-1].ne(self.eos)
        position = torch.arange(ranking.draft.size(1), device=ranking.draft.device)
        forced = (position < self.min_block - 1) & unended & allowed(ranking) & ranking.real
        return self.rule.agrees(ranking) | forced


def allowed(ranking: Ranking) -> Tensor:
    """(rows, m) true where no mask rules the drafted token out."""
    drafted = ranking.scores.values[:, :-1].gather(2, ranking.draft.unsqueeze(2))
    return drafted.squeeze(2).isfinite()


class Emission(NamedTuple):
    """What an iteration adds to each row.

    Attributes:
        tokens: (rows, m + 1) kept draft tokens, then the verifier's own next one;
            any symbols beyond ``counts``. Without a verifier (``--decoding nat``) all are drafted.
        scores: (rows, m + 1) their log-probabilities; any numbers beyond ``counts``.
        counts: (rows,) how many are added, from 1 to m + 1.
        kept: (rows,) how many of those were drafted.
        ended: (rows,) 1 where the last one ends the sentence, else 0.
        best: (rows, m + 1) the verifier's best token of each position.
    """

    tokens: Tensor
    scores: Tensor
    counts: Tensor
    kept: Tensor
    ended: Tensor
    best: Tensor


def judge(
    scores: Scores, draft: Draft, rule: Rule, eos: int, best: Optional[Tensor] = None
) -> Emission:
    """Take the prefix of the draft that the rule lets stand, and the verifier's next token.

    Nothing follows an end of sentence: a row that accepts one, drafted or not,
    ends there.

    Args:
        scores: (rows, m + 1, …) the verifier's scores, limits applied.
        draft: m tokens a row.
        rule: decides which drafted tokens may be accepted.
        eos: the symbol that ends a sentence.
        best: (rows, m + 1) the verifier's choices; by default its most probable symbols.
    """
    best = scores.values.argmax(2) if best is None else best
    ranking = Ranking(scores, best, draft.tokens, draft.real())
    kept = _agreeing(rule.agrees(ranking))
    position = torch.arange(best.size(1), device=kept.device)
    proposed = torch.cat([draft.tokens, best[:, -1:]], dim=1)
    tokens = torch.where(position < kept.unsqueeze(1), proposed, best)
    return _emission(tokens, scores.of(tokens), kept, eos, best)


def judge_best(best: Tensor, scores: Tensor, draft: Draft, eos: int) -> Emission:
    """:meth:`judge` by exact acceptance, which looks at the verifier's best tokens alone.

    Args:
        best: (rows, m + 1) the verifier's choices.
        scores: (rows, m + 1) their log-probabilities.
        draft: m tokens a row.
        eos: as for :func:`judge`.
    """
    kept = _agreeing((draft.tokens == best[:, :-1]) & draft.real())
    return _emission(best, scores, kept, eos, best)


def _agreeing(agrees: Tensor) -> Tensor:
    """(rows,) how many of (rows, m) are true before the first that is not."""
    return agrees.long().cumprod(1).sum(1)


def _emission(tokens: Tensor, scores: Tensor, kept: Tensor, eos: int, best: Tensor) -> Emission:
    """What is added of (rows, m + 1) tokens, where (rows,) ``kept`` drafted ones stand."""
    ends = tokens.eq(eos)
    if tokens.size(1) == 1:
        return Emission(tokens, scores, kept + 1, kept, ends.squeeze(1).long(), best)
    position = torch.arange(tokens.size(1), device=kept.device)
    ends &= position <= kept.unsqueeze(1)
    ended = ends.any(1)
    first = ends.int().argmax(1)
    counts = torch.where(ended, first, kept) + 1
    kept = torch.minimum(kept, counts)
    return Emission(tokens, scores, counts, kept, ended.long(), best)
