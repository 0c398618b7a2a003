"""The rows of a batch and their drafts, as the native kernels read and write them."""

import ctypes
from typing import Any

import torch
from torch import Tensor

from ..engine.native.interface import field, structure
from .sampling import Sampling
from .state import Draft, Rows


@structure
class RowsCall(ctypes.Structure):
    """The rows of a batch that are being decoded; see :class:`.state.Rows`."""

    count = field("int")
    capacity = field("int", "tokens that each row has room for")
    tokens = field("int64_t*", "(count, capacity) the first symbol, then the chosen ones")
    scores = field("float*", "(count, capacity) log-probabilities of the chosen symbols")
    lengths = field("int64_t*", "(count) how many are chosen")
    sampling = field("Sampling", "what they are drawn with")


class DraftBuffer:
    """A draft that the kernels write, again and again."""

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self.draft = Draft(torch.empty(0, block_size, dtype=torch.long), torch.empty(0))

    def fit(self, rows: int, target: Any) -> None:
        """Make it hold ``rows`` rows, and point ``target``, a kernels' structure, to it."""
        if self.draft.tokens.size(0) != rows:
            tokens = torch.zeros(rows, self._block_size, dtype=torch.long)
            self.draft = Draft(tokens, torch.zeros(rows, dtype=torch.long))
        target.draft = self.draft.tokens.data_ptr()
        target.draft_lengths = self.draft.lengths.data_ptr()


def describe_rows(rows: Rows, target: Any) -> None:
    """Point ``target``, a :class:`RowsCall`, to the tensors of ``rows``."""
    inputs: Tensor = rows.inputs
    target.count, target.capacity = inputs.shape
    target.tokens = inputs.data_ptr()
    target.scores = rows.scores.data_ptr()
    target.lengths = rows.lengths.data_ptr()
    describe_sampling(rows, target.sampling)


def describe_sampling(rows: Rows, target: Sampling) -> None:
    """Point ``target`` to what draws for ``rows``; it stays as it is where nothing is drawn."""
    if rows.sampler is not None:
        rows.sampler.describe(rows.lengths, target)
