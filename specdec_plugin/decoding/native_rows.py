"""The rows of a batch and their drafts, as the native kernels read and write them."""

from typing import Any

import torch
from torch import Tensor

from ..engine.native import pointer
from .state import Draft, Rows


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
    """Point ``target``, a :class:`native.Rows`, to the tensors of ``rows``."""
    inputs: Tensor = rows.inputs
    target.count, target.room = inputs.shape
    target.tokens = inputs.data_ptr()
    target.scores = rows.scores.data_ptr()
    target.lengths = rows.lengths.data_ptr()
    target.states = pointer(rows.states)
    target.iterate = pointer(rows.iterate)
    target.iterate_room = 0 if rows.iterate is None else rows.iterate.size(1)
