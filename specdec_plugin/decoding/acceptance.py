"""Which drafted tokens are kept, given what the verifier says at each position.

Every rule gets log-probabilities whose masks are already applied, so no rule can
accept padding, an early end of sentence, or a token against a forced prefix.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Ranking(NamedTuple):
    """The verifier's word on a draft of m tokens.

    Attributes:
        lprobs: (rows, m + 1, vocabulary) masked log-probabilities; position i is
            what follows the first i drafted tokens.
        best: (rows, m + 1) the most probable token of each position.
        draft: (rows, m) drafted tokens.
        real: (rows, m) false where a row drafted fewer than m tokens.
    """

    lprobs: Tensor
    best: Tensor
    draft: Tensor
    real: Tensor


class Exact:
    """Keep drafted tokens that greedy decoding would have chosen (paper 001, section 3.2)."""

    def agrees(self, ranking: Ranking) -> Tensor:
        """(rows, m) true where the drafted token may stand."""
        return (ranking.draft == ranking.best[:, :-1]) & ranking.real


class TopBeta:
    """Keep drafted tokens that are almost the best (SpecDec++; paper 001, eq. 6 and 7).

    A drafted token may stand when the verifier ranks it among its β best and
    gives it a log-probability within τ of its best.

    Args:
        beta: β ≥ 1; 1 is :class:`Exact`.
        tolerance: τ ≥ 0 in nats; infinite for plain top-β.
    """

    def __init__(self, beta: int, tolerance: float = math.inf) -> None:
        self.beta = beta
        self.tolerance = tolerance

    def agrees(self, ranking: Ranking) -> Tensor:
        """(rows, m) true where the drafted token may stand."""
        exact = Exact().agrees(ranking)
        if self.beta == 1 or ranking.draft.size(1) == 0:
            return exact
        lprobs = ranking.lprobs[:, :-1]
        drafted = lprobs.gather(2, ranking.draft.unsqueeze(2)).squeeze(2)
        best = lprobs.topk(min(self.beta, lprobs.size(2)), dim=2).values
        near = (drafted >= best[..., -1]) & (best[..., 0] - drafted <= self.tolerance)
        return exact | (near & ranking.real & drafted.isfinite())


class Emission(NamedTuple):
    """What an iteration adds to each row.

    Attributes:
        tokens: (rows, m + 1) kept draft tokens, then the verifier's own next one;
            rubbish beyond ``counts``.
        counts: (rows,) how many are added, from 1 to m + 1.
        kept: (rows,) how many of those were drafted.
        ended: (rows,) true where the last one ends the sentence.
    """

    tokens: Tensor
    counts: Tensor
    kept: Tensor
    ended: Tensor


def emit(ranking: Ranking, agrees: Tensor, eos: int) -> Emission:
    """Take the agreed prefix of the draft and the verifier's next token.

    Nothing follows an end of sentence: a row that accepts one, drafted or not,
    ends there.

    Args:
        ranking: the verifier's word.
        agrees: (rows, m) which drafted tokens may stand.
        eos: the symbol that ends a sentence.
    """
    kept = agrees.long().cumprod(1).sum(1)
    width = ranking.best.size(1)
    place = torch.arange(width, device=kept.device)
    if width == 1:
        tokens = ranking.best
    else:
        draft = torch.cat([ranking.draft, ranking.best[:, -1:]], dim=1)
        tokens = torch.where(place < kept.unsqueeze(1), draft, ranking.best)
    ends = tokens.eq(eos) & (place <= kept.unsqueeze(1))
    ended = ends.any(1)
    first = ends.int().argmax(1)
    counts = torch.where(ended, first, kept) + 1
    return Emission(tokens, counts, torch.minimum(kept, counts), ended)
