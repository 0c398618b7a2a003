"""The fate of each draft: accepted, accepted as almost the best, rejected, discarded.

Xia et al. (2023) show this in Table 19: at each iteration the drafter's block, the bifurcation
where the verifier predicts another token, and in SpecDec++ the tokens that are kept though they
are not its best.
"""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from torch import Tensor

from ...decoding.state import Batch
from ...decoding.verifier import Verifier
from ..history import count_kept, steps_of
from .kinds import Kind
from .observe import predict


class Drafted(NamedTuple):
    """A drafted token and its fate.

    Attributes:
        token: its index in the dictionary.
        kind: ``ACCEPTED``, ``TOP_BETA``, ``BIFURCATION`` or ``DISCARDED``.
        probability: the verifier's, given the output before it, 0 if the rules of decoding
            forbid the token; None for discarded tokens, which follow others than the output.
    """

    token: int
    kind: Kind
    probability: Optional[float]


class Iteration(NamedTuple):
    """One iteration of one sentence.

    Attributes:
        begin: tokens that were accepted before.
        draft: the drafted tokens.
        added: what was added: the drafted tokens that are kept, then the verifier's own, unless
            a drafted end of sentence is kept.
        own: the probability of the verifier's own token; None if there is none.
    """

    begin: int
    draft: List[Drafted]
    added: List[int]
    own: Optional[float]

    @property
    def kept(self) -> int:
        """Drafted tokens that are kept."""
        return len(self.added) - (self.own is not None)


def classify(draft: Sequence[int], added: Sequence[int], best: Sequence[int]) -> List[Kind]:
    """The fate of each drafted token.

    Args:
        draft: drafted tokens.
        added: the tokens that the iteration added to the output.
        best: (len(added),) the verifier's best tokens at their positions.
    """
    kept = count_kept(draft, added)
    kinds = [
        Kind.ACCEPTED if token == first else Kind.TOP_BETA
        for token, first in zip(draft[:kept], best)
    ]
    behind = [Kind.DISCARDED] * (len(draft) - kept)
    if behind and kept < len(added):
        behind[0] = Kind.BIFURCATION
    return kinds + behind


def judge(
    begin: int,
    draft: Sequence[int],
    added: Sequence[int],
    best: Sequence[int],
    probabilities: Tensor,
) -> Iteration:
    """One iteration in full.

    Args:
        begin: tokens that were accepted before.
        draft: drafted tokens.
        added: the tokens that the iteration added to the output.
        best: (m,) the verifier's best token at each position of the output.
        probabilities: (m, vocabulary) the verifier's, at each position of the output.
    """
    kinds = classify(draft, added, best[begin : begin + len(added)])
    drafted = [
        Drafted(
            token, kind, None if kind is Kind.DISCARDED else float(probabilities[position, token])
        )
        for position, (token, kind) in enumerate(zip(draft, kinds), begin)
    ]
    kept = count_kept(draft, added)
    own = float(probabilities[begin + kept, added[kept]]) if kept < len(added) else None
    return Iteration(begin, drafted, list(added), own)


def observe(verifier: Verifier, batch: Batch, hypothesis: Dict[str, Any]) -> List[Iteration]:
    """The iterations of a speculatively decoded sentence, as an observer.

    One pass over the output finds the verifier's best token at each position, and the
    probabilities of the drafted tokens.

    Args:
        verifier: started with ``batch``.
        batch: of one sentence.
        hypothesis: ``tokens`` (m,), and ``history``: the draft and the added tokens of each
            iteration in turn, (drafted,) and (added,) long.
    """
    scores = predict(verifier, batch, hypothesis["tokens"].to(batch.device))
    best = scores.values.argmax(1).tolist()
    probabilities = (scores.values - scores.normalisers.unsqueeze(1)).exp().cpu()
    iterations: List[Iteration] = []
    begin = 0
    for draft, added in steps_of(hypothesis["history"]):
        iterations.append(judge(begin, draft, added, best, probabilities))
        begin += len(added)
    return iterations
