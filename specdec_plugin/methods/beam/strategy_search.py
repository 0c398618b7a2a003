"""Beam search by one of fairseq's strategies, which compares the candidates itself.

The strategies are diverse beams (Vijayakumar et al. 2018), diverse siblings (Li, Monroe and
Jurafsky 2016), phrases that the output must contain (Post and Vilar 2018; Hu et al. 2019), and
tokens that a function allows (De Cao et al. 2021). The model's passes are those of any beam search
here.
"""

from typing import Optional

import torch
from fairseq.search import PrefixConstrainedBeamSearch, Search
from torch import Tensor

from ...decoding.constraints import Constraints
from ...decoding.lengths import Lengths
from ...decoding.state import Batch
from ...decoding.verifier import Verifier
from ...errors import PluginError
from ...fairseq_compat.phrase_search import PhraseSearch
from ...fairseq_compat.strategies import begin_constraints
from .beams import Candidates
from .torch_search import TorchBeamSearch


def strategy_for(strategy: Optional[Search], batch: Batch) -> Optional[Search]:
    """The strategy, or None where plain beam search finds the same: no phrases are wanted."""
    for_phrases = isinstance(strategy, PhraseSearch)
    return None if for_phrases and batch.constraints.phrases is None else strategy


class StrategySearch(TorchBeamSearch):
    """A batch whose candidates a strategy chooses.

    Args:
        strategy: fairseq's.
        verifier, lengths, beams, batch: as for :class:`.TorchBeamSearch`.
    """

    def __init__(
        self, strategy: Search, verifier: Verifier, lengths: Lengths, beams: int, batch: Batch
    ) -> None:
        super().__init__(verifier, lengths, beams, batch)
        self._strategy = strategy
        # A function that allows tokens knows sentences by their numbers in the data. Other
        # strategies know their rows in the batch.
        self._numbers = self.sentences
        if isinstance(strategy, PrefixConstrainedBeamSearch) and batch.numbers is not None:
            self._numbers = batch.numbers.to(batch.device)
        self._begin = 0
        if batch.constraints.phrases is not None:
            begin_constraints(strategy, batch.constraints.phrases, beams)
            # Phrases begin behind a forced prefix, such as the symbol of a language. fairseq would
            # fill beams with phrases that the prefix rules out.
            if self.prefix is not None and isinstance(strategy, PhraseSearch):
                self._begin = prefix_width(self.constraints)
                strategy.follow(self.prefix)

    def _candidates(self, lprobs: Tensor, step: int) -> Candidates:
        if step < self._begin:
            return super()._candidates(lprobs, step)
        own, sums = step - self._begin, self.beams.totals[:, :, self._begin :]
        every = lprobs if own > 0 else lprobs[:, :1].expand(-1, self._width, -1).contiguous()
        if own == 0 and step > 0 and isinstance(self._strategy, PhraseSearch):
            self._strategy.forbid_ends(every)  # in its first step, it takes them for ruled out
        tokens, numbers = self.beams.tokens.flatten(0, 1), self._numbers[self.sentences]
        totals, symbols, parents = self._strategy.step(own, every, sums, tokens, numbers)
        if own == 0:  # where all beams are the first one
            parents = torch.zeros_like(parents)
            if step > 0:
                totals = totals + self.beams.totals[:, :1, -1]
        return Candidates(totals, symbols, parents)

    def _follow(self, left: Optional[Tensor], ranks: Tensor, step: int) -> None:
        if left is not None:
            self._strategy.prune_sentences(left)
        if step >= self._begin:
            self._strategy.update_constraints(ranks)


def prefix_width(rules: Constraints) -> int:
    """Tokens of all prefixes beside phrases; those that end their sentence may be shorter.

    Raises:
        PluginError: they have different lengths, so that phrases would begin at different steps.
    """
    prefix = rules.prefix
    if prefix is None:
        return 0
    short = prefix.eq(rules.pad).any(1) & ~prefix.eq(rules.eos).any(1)
    if bool(short.any()):
        raise PluginError(
            "prefix_tokens of a batch with constraints have different lengths: decode those of "
            "each length by themselves."
        )
    return prefix.size(1)
