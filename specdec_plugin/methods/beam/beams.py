"""The beams of a batch by fairseq's rules: which candidates end a hypothesis, which continue."""

import math
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from ...decoding.lengths import Lengths

Hypotheses = List[List[Dict[str, Any]]]


class Candidates(NamedTuple):
    """What may come next in each sentence, the best first: up to 2B candidates.

    Attributes:
        totals: (n, candidates) log-probabilities, cumulated.
        tokens: (n, candidates) long.
        parents: (n, candidates) long, the beams that they continue.
    """

    totals: Tensor
    tokens: Tensor
    parents: Tensor

    @classmethod
    def of(cls, totals: Tensor, index: Tensor, vocabulary: int) -> "Candidates":
        """Those at ``index`` of a row of (beams * vocabulary) totals."""
        return cls(totals, index % vocabulary, index // vocabulary)

    def select(self, sentences: Tensor) -> "Candidates":
        """Those of some sentences, (sentences,) long."""
        return Candidates(*(each[sentences] for each in self))

    def take(self, ranks: Tensor) -> "Candidates":
        """Those of some ranks, (n, any) long, in each sentence."""
        return Candidates(*(each.gather(1, ranks) for each in self))

    def ends(self, eos: int) -> Tensor:
        """(n, candidates) which end a sentence."""
        return self.tokens.eq(eos) & self.totals.ne(-math.inf)


def first_unended(ended: Tensor, beams: int) -> Tuple[Tensor, Tensor]:
    """The first B candidates that end nothing.

    Args:
        ended: (n, candidates) which do, or continue a beam that is ignored.
        beams: B.

    Returns:
        (n, B) their ranks; and where candidates are too few, so that the beam is to be ignored.
    """
    width = 2 * beams
    order = torch.arange(ended.size(1), device=ended.device) + width * ended
    order, ranks = order.topk(beams, largest=False)
    return ranks, order >= width


class Beams:
    """The beams of the sentences that are not done, and the hypotheses that have ended.

    Args:
        size: sentences of the batch.
        beams: B.
        bos: what the decoder is fed first.
        eos: ends a hypothesis.
        lengths: fairseq's length options.
        device: where the candidates come from.

    Attributes:
        order: each row's index in the batch.
        tokens: (n, B, steps + 1) what the decoder was fed.
        totals: (n, B, steps) log-probabilities, cumulated.
        finished: the hypotheses of each sentence of the batch, in the order in which they ended.
    """

    def __init__(
        self, size: int, beams: int, bos: int, eos: int, lengths: Lengths, device: torch.device
    ) -> None:
        self._beams, self._eos, self._lengths = beams, eos, lengths
        self.order = list(range(size))
        self.tokens = torch.full((size, beams, 1), bos, device=device)
        self.totals = torch.zeros(size, beams, 0, dtype=torch.float32, device=device)
        # Beams that continue nothing, where too few candidates were left.
        self._ignored = torch.zeros(size, beams, dtype=torch.bool, device=device)
        self.finished: Hypotheses = [[] for _ in range(size)]

    def open(self, sentence: int) -> bool:
        """Whether a sentence of the batch needs more hypotheses."""
        return len(self.finished[sentence]) < self._beams

    def finish(self, found: Candidates, source_lengths: Optional[Tensor] = None) -> Tensor:
        """Note the hypotheses that end: those among the first B candidates.

        Args:
            found: the candidates of a step.
            source_lengths: (n,) the length that each output must have, or None.

        Returns:
            (n, candidates) which end a sentence.
        """
        ends, step = found.ends(self._eos), self.totals.size(2)
        ends[:, : self._beams] &= ~self._ignored
        sentence, rank = ends[:, : self._beams].nonzero(as_tuple=True)
        owners = [self.order[row] for row in sentence.tolist()]
        wanted = [index for index, owner in enumerate(owners) if self.open(owner)]
        if not wanted:
            return ends
        if len(wanted) < len(owners):
            sentence, rank = sentence[wanted], rank[wanted]
            owners = [owners[index] for index in wanted]
        beam = found.parents[sentence, rank]
        total = found.totals[sentence, rank]
        last = found.tokens[sentence, rank, None]
        lines = torch.cat([self.tokens[sentence, beam, 1:], last], dim=1)
        sums = torch.cat([self.totals[sentence, beam], total[:, None]], dim=1)
        each = sums.diff(dim=1, prepend=torch.zeros_like(sums[:, :1]))
        scores = self._lengths.score(total, step + 1)
        if source_lengths is not None:
            scores = scores.masked_fill(step > source_lengths[sentence], -math.inf)
        for owner, line, positional, score in zip(owners, lines, each, scores):
            if self.open(owner):
                self.finished[owner].append(
                    {"tokens": line, "positional_scores": positional, "score": score}
                )
        return ends

    def keep(self, rows: List[int]) -> Tensor:
        """Go on with these rows only; the same as a tensor, (rows,)."""
        kept = torch.tensor(rows, device=self.tokens.device)
        self.order = [self.order[row] for row in rows]
        self.tokens, self.totals = self.tokens[kept], self.totals[kept]
        self._ignored = self._ignored[kept]
        return kept

    def choose(self, ended: Tensor) -> Tensor:
        """Choose the first B candidates that end nothing.

        Args:
            ended: (n, candidates) from :meth:`finish`.

        Returns:
            (n, B) their ranks.
        """
        ended = ended.clone()
        ended[:, : self._beams] |= self._ignored
        ranks, self._ignored = first_unended(ended, self._beams)
        return ranks

    def advance(self, chosen: Candidates) -> None:
        """Make the chosen candidates, (n, B), the beams."""
        own = torch.arange(len(self.tokens), device=chosen.tokens.device).unsqueeze(1)
        tokens, totals = self.tokens[own, chosen.parents], self.totals[own, chosen.parents]
        self.tokens = torch.cat([tokens, chosen.tokens.unsqueeze(2)], dim=2)
        self.totals = torch.cat([totals, chosen.totals.unsqueeze(2)], dim=2)
