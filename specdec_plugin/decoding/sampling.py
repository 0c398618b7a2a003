"""Draws from the model's distribution, or from the most probable part of it.

The token of a position is the symbol with the greatest noisy log-probability among those that the
cut leaves; see :mod:`.noise`. The cuts are those of fairseq's ``search.Sampling``: the k most
probable symbols, or the fewest whose probabilities add up to p or more. Symbols that are as
probable as the last one are left too.

``sampling.h`` draws in the kernels.
"""

import ctypes
import math
from typing import Any, NamedTuple, Optional, Union

import torch
from torch import Tensor

from ..engine.native.interface import Header, field, structure
from ..engine.output_projection import Scores
from . import noise

Header(__file__, "sampling.h")


@structure
class Sampling(ctypes.Structure):
    """What rows draw with; see :class:`.sampling.Sampler`."""

    keys = field("const int64_t*", "(count) tell the rows' noise apart; null: nothing is drawn")
    lengths = field("const int64_t*", "(count) tokens that each row has")
    temperature = field("float", "divides scores")
    top_k = field("int", "draws are among so many symbols; 0: any number")
    top_p = field("float", "draws are among the symbols of so much probability; 0: of any")


class Settings(NamedTuple):
    """How samples are drawn.

    Attributes:
        seed: any whole number.
        samples: how many of each sentence.
        temperature: divides the logits.
        top_k: fairseq's ``--sampling-topk``; 0 for all symbols.
        top_p: fairseq's ``--sampling-topp``; 0 for all symbols.
        offset: sentences of the corpus before the first one.
    """

    seed: int = 1
    samples: int = 1
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0
    offset: int = 0

    def sampler(self, sentences: Tensor) -> "Sampler":
        """What draws for each sample of some sentences, those of a sentence side by side.

        Args:
            sentences: (sentences,) their numbers, without the offset.
        """
        numbers = (sentences + self.offset).repeat_interleave(self.samples)
        samples = torch.arange(self.samples, device=sentences.device).repeat(sentences.size(0))
        keys = noise.row_keys(self.seed, numbers, samples)
        return Sampler(keys, self.temperature, self.top_k, self.top_p)


class Sampler(NamedTuple):
    """What draws the tokens of rows.

    Attributes:
        keys: (rows,) int64, tell the rows' noise apart.
        temperature: divides the logits, in drafts as in verification.
        top_k: symbols that draws are among; 0 for all.
        top_p: the probability of the symbols that draws are among; 0 for all.
    """

    keys: Tensor
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 0.0

    def select(self, rows: Union[Tensor, slice]) -> "Sampler":
        """The same for some of the rows."""
        return self._replace(keys=self.keys[rows])

    def draw(self, scores: Scores, starts: Tensor) -> Tensor:
        """A symbol for each position.

        Args:
            scores: (rows, width, vocabulary) -inf where a symbol may not be chosen.
            starts: (rows,) the position of each row's first one.

        Returns:
            (rows, width).
        """
        width, symbols = scores.values.shape[1:]
        positions = starts.unsqueeze(1) + torch.arange(width, device=starts.device)
        noisy = scores.values + noise.gumbel(self.keys, positions, symbols)
        floor = self._floor(scores)
        if floor is not None:
            noisy = noisy.masked_fill(scores.values < floor, -math.inf)
        return noisy.argmax(2)

    def _floor(self, scores: Scores) -> Optional[Tensor]:
        """(rows, width, 1) the least score that the cut leaves; None without a cut."""
        symbols = scores.values.size(2)
        if self.top_k > 0:
            return scores.values.topk(min(self.top_k, symbols)).values[..., -1:]
        if self.top_p <= 0:
            return None
        ordered = scores.values.sort(descending=True).values
        mass = (ordered - scores.normalisers.unsqueeze(2)).exp_().cumsum(2)
        last = mass.lt(self.top_p).sum(2, keepdim=True).clamp(max=symbols - 1)
        return ordered.gather(2, last)

    def describe(self, lengths: Tensor, target: Any) -> None:
        """Point ``target``, a :class:`Sampling`, to the rows' keys and lengths."""
        target.keys, target.lengths = self.keys.data_ptr(), lengths.data_ptr()
        target.temperature, target.top_k, target.top_p = self[1:]
