"""Where the symbols of a padded batch are, as the kernels read it."""

import functools
from typing import NamedTuple, Optional

import numpy as np
import torch
from torch import Tensor

#: Rows of a batch whose spans are kept where nothing is padded.
FEW = 8


class Spans(NamedTuple):
    """The symbols of each row, which are behind each other.

    Attributes:
        begins: (rows,) long, the position of the first in its row; or its index among all vectors,
            where these are kept without padding.
        lengths: (rows,) long, how many they are.
        starts: (rows + 1,) long, how many the rows before have; the total.
        order: (rows,) long, the rows, those with many symbols first.
        longest: the most symbols of a row.
        total: those of all rows.
    """

    begins: Tensor
    lengths: Tensor
    starts: Tensor
    order: Tensor
    longest: int
    total: int

    @classmethod
    def of(cls, rows: int, width: int, padding: Optional[Tensor]) -> "Spans":
        """Those of a batch; nobody may change their tensors.

        Args:
            rows: of the batch.
            width: of the batch.
            padding: (rows, width) true before or behind the symbols of a row; None: nowhere.
        """
        if padding is None:
            return (_unpadded if rows > FEW else _kept)(rows, width)
        # By NumPy, whose threads cannot hang in a forked process, as those of PyTorch do.
        real = np.logical_not(padding.numpy())
        return cls.behind(torch.from_numpy(real.argmax(1)), torch.from_numpy(real.sum(1)))

    @classmethod
    def behind(cls, begins: Tensor, lengths: Tensor) -> "Spans":
        """Those of rows whose symbols are behind ``begins``, (rows,) each."""
        starts = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])
        order = lengths.argsort(descending=True, stable=True)
        return cls(begins, lengths, starts, order, int(lengths.max()), int(starts[-1]))


def _unpadded(rows: int, width: int) -> Spans:
    return Spans.behind(torch.zeros(rows, dtype=torch.long), torch.full((rows,), width))


# For a few sentences, making these tensors takes longer than what they are made for.
_kept = functools.lru_cache(maxsize=256)(_unpadded)


def amid(padding: Optional[Tensor]) -> bool:
    """Whether anything in (rows, width) is padding between two symbols."""
    if padding is None:
        return False
    real = np.logical_not(padding.numpy())
    first, last = real.argmax(1), real.shape[1] - 1 - real[:, ::-1].argmax(1)
    return bool((last - first + 1 != real.sum(1)).any())
