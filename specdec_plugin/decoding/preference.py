"""Tokens that are preferred: a number is added to their log-probabilities before the choice."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from .state import Batch, Draft, Rows


class Preference(ABC):
    """Prefers one token at each position, which follows from the tokens before it alone.

    So the output depends neither on drafts nor on other sentences. It is that of greedy search
    over log p(v) + bias · [v is preferred]. Scores are reported without the bias.

    Attributes:
        bias: what is added to log-probabilities; below 0 the token is avoided.
    """

    bias: float

    @abstractmethod
    def start(self, batch: Batch) -> None:
        """Begin a batch."""

    @abstractmethod
    def tokens(self, rows: Rows, draft: Draft) -> Tensor:
        """The preferred tokens behind the chosen ones and behind each drafted one.

        Args:
            rows: the rows.
            draft: m tokens a row.

        Returns:
            (rows, m + 1) on the rows' device, -1 where no token is preferred; any symbol beyond a
            row's draft.
        """

    @abstractmethod
    def select(self, rows: Tensor) -> None:
        """Continue with these rows only: (rows,) indices into the current ones."""


def most_preferred(values: Tensor, tokens: Tensor, bias: float) -> Tensor:
    """The symbols with the greatest scores, those of preferred tokens raised.

    Args:
        values: (rows, width, vocabulary) scores; changed for a moment only.
        tokens: (rows, width) preferred symbols, or -1.
        bias: what is added to their scores.

    Returns:
        (rows, width).
    """
    index = tokens.clamp(min=0).unsqueeze(2)
    kept = values.gather(2, index)
    values.scatter_(2, index, torch.where(tokens.unsqueeze(2) >= 0, kept + bias, kept))
    best = values.argmax(2)
    values.scatter_(2, index, kept)
    return best
