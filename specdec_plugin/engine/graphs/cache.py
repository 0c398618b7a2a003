"""Keys and values in tensors that stay where they are."""

import torch
from torch import Tensor

from ..kv_cache import KVCache
from .tensors import StaticTensors, leading


class StaticCache(KVCache):
    """A cache in tensors that stay where they are: rows move when some leave.

    Args:
        tensors: where entries are kept.
        rows: sentences.

    Attributes:
        written: slots that may hold entries. Rows leave before the newest ones are counted.
    """

    def __init__(self, tensors: StaticTensors, rows: int) -> None:
        layers, _, _, capacity, heads, head_dim = tensors.store.shape
        dtype, device = tensors.store.dtype, tensors.store.device
        super().__init__(
            layers, rows, heads, head_dim, capacity, dtype, device,
            store=tensors.store, lengths=leading(tensors.nothing, rows),
        )  # fmt: skip
        self.written = 0

    def look(self, lengths: Tensor, new: int, slots: Tensor) -> None:
        """Get ready for the :meth:`write` of every layer, without a look at any number.

        Args:
            lengths: (rows,) long, valid entries of each row; behind the cache's rows may be others.
            new: entries to come for each row.
            slots: (visible,) long: 0, 1, …: how many slots :meth:`write` will show.
        """
        rows, visible = lengths.size(0), slots.size(0)
        planes = self.store.flatten(0, 1).narrow(1, 0, rows).narrow(2, 0, visible)
        self._visible = planes.transpose(2, 3).unbind(0)
        numbers = torch.arange(rows, device=lengths.device)
        first = lengths + numbers * self.capacity
        self._slots = (first.unsqueeze(1) + slots[:new]).view(-1)
        self._targets = self.store.flatten(2, 3).unbind(0)

    def select(self, rows: Tensor) -> None:
        """See :class:`KVCache`."""
        self.move(rows)
        self.lengths = self.lengths.index_select(0, rows)
        if self.rows == 1:
            self.longest = int(self.lengths)

    def fork(self, parents: Tensor, row_index: Tensor) -> None:
        """See :class:`KVCache`."""
        self.move(parents)
        self.lengths = self.lengths.index_select(0, parents)

    def move(self, rows: Tensor) -> None:
        """Let the first rows be these, (any,) long: their entries, and not their lengths."""
        entries = self.store.narrow(3, 0, self.written)
        entries.narrow(2, 0, rows.size(0)).copy_(entries.index_select(2, rows))
