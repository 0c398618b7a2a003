"""Keys and values of the tokens that were accepted, one ragged row a sentence."""

from typing import Optional, Tuple

import numpy as np
import torch
from torch import Tensor


class KVCache:
    """Self-attention keys and values of all layers, preallocated.

    Row ``r`` holds valid entries in slots ``0 … lengths[r] - 1``.  New entries go
    to the slots behind and count only from :meth:`keep` on; what was not
    kept is overwritten by the next write, so rolling back costs nothing.

    Args:
        layers: decoder layers.
        rows: sentences.
        heads: attention heads.
        head_dim: size of a head.
        capacity: slots a row to begin with.
        dtype: of keys and values.
        device: where they are.
        for_kernels: leave everything where it is when rows leave, and do not clear it: the
            kernels find rows by :attr:`row_index` and read no slot that is not valid.  Others
            mask such slots, which contributes exactly nothing unless they hold NaN.
        store: where entries are kept, of at least as many rows; ``None``: the cache allocates.
        lengths: (rows,) long, entries that are valid to begin with; ``None``: none are.

    Attributes:
        rows: sentences that are left.
        store: (layers, 2, rows, capacity, heads, head_dim) keys, then values.
        row_index: (rows,) long, the index of each row in :attr:`store`; None: in their order.
        ancestors: (rows, capacity) long, where rows share slots (see :meth:`fork`): the row of
            :attr:`store` that holds each slot of a row; else None.
        lengths: (rows,) long, valid entries of each row.
        longest: upper bound of ``lengths``, known to the host, so that no call
            waits for the device; with a single row it is exactly its length.
    """

    def __init__(
        self,
        layers: int,
        rows: int,
        heads: int,
        head_dim: int,
        capacity: int,
        dtype: torch.dtype,
        device: torch.device,
        for_kernels: bool = False,
        store: Optional[Tensor] = None,
        lengths: Optional[Tensor] = None,
    ) -> None:
        self.for_kernels = for_kernels
        self.row_index: Optional[Tensor] = None
        self.ancestors: Optional[Tensor] = None
        self._make = torch.empty if for_kernels else torch.zeros
        # Slots before heads: what one call writes for a single row is then one piece of memory.
        shape = layers, 2, rows, max(capacity, 1), heads, head_dim
        self.store = self._make(shape, dtype=dtype, device=device) if store is None else store
        none = torch.zeros(rows, dtype=torch.long, device=device) if lengths is None else lengths
        self.lengths, self.longest = none, 0
        self._numbers: Optional[Tensor] = None
        self._targets: Tuple[Tensor, ...] = ()
        self._slots: Optional[Tensor] = None
        self._visible: Tuple[Tensor, ...] = ()

    @property
    def rows(self) -> int:
        return self.lengths.size(0)

    @property
    def capacity(self) -> int:
        """Slots a row; grows by doubling when a write does not fit."""
        return self.store.size(3)

    def make_room(self, new: int) -> int:
        """Make room for ``new`` entries a row: ``longest + new`` slots, which is returned."""
        end = self.longest + new
        if end > self.capacity:
            self._grow(end)
        return end

    def reserve(self, new: int) -> int:
        """:meth:`make_room`, and get ready for the :meth:`write` of every layer.

        Returns:
            the number of slots that :meth:`write` will show: ``longest + new``.
        """
        end = self.make_room(new)
        planes = self.store.flatten(0, 1).narrow(2, 0, end)
        self._visible = planes.transpose(2, 3).unbind(0)
        if self.rows == 1:
            self._slots = None
            self._targets = self.store.narrow(3, self.longest, new).transpose(3, 4).unbind(0)
        else:
            first = self.lengths + self._numbers_to(self.rows) * self.capacity
            self._slots = (first.unsqueeze(1) + self._numbers_to(new)).view(-1)
            self._targets = self.store.flatten(2, 3).unbind(0)
        return end

    def write(self, layer: int, entries: Tensor) -> Tuple[Tensor, Tensor]:
        """Put new entries into the slots ``lengths[r] … lengths[r] + new - 1`` of each row ``r``.

        Args:
            layer: index of the decoder layer.
            entries: (2, rows, heads, new, head_dim), keys then values, with ``new``
                as given to the :meth:`reserve` before.

        Returns:
            keys and values, each (rows, heads, longest + new, head_dim): views of the cache.
        """
        if self._slots is None:
            self._targets[layer].copy_(entries)
        else:
            by_slot = entries.transpose(2, 3).flatten(1, 2)
            self._targets[layer].index_copy_(1, self._slots, by_slot)
        return self._visible[2 * layer], self._visible[2 * layer + 1]

    def keep(self, lengths: Tensor, longest: int) -> None:
        """Declare what is valid now: accept and roll back at once.

        Args:
            lengths: (rows,) long, on the cache's device; each at most the former
                length plus the entries written since.
            longest: an upper bound of ``lengths``; exact if there is one row.
        """
        self.lengths = lengths
        self.longest = longest

    def select(self, rows: Tensor) -> None:
        """Keep these rows only, in this order.

        Args:
            rows: (kept,) long.
        """
        if self.for_kernels:
            old = self.row_index
            self.row_index = rows if old is None else old.index_select(0, rows)
            if self.ancestors is not None:
                self.ancestors = self.ancestors.index_select(0, rows)
        else:
            self.store = self.store.index_select(2, rows)
        self.lengths = self.lengths.index_select(0, rows)
        if self.rows == 1:
            # A single row is written by slice, so the bound must become exact.
            self.longest = int(self.lengths)

    def fork(self, parents: Tensor, row_index: Tensor) -> None:
        """Let every row continue what a parent holds; several rows may have one parent.

        Nothing is copied for the kernels: a row reads its ancestors' slots, and writes its own.

        Args:
            parents: (new rows,) long, indices of rows.
            row_index: (new rows,) long, all different: the rows of :attr:`store` to write to.
        """
        self.lengths = self.lengths.index_select(0, parents)
        if not self.for_kernels:
            valid = self.store.narrow(3, 0, self.longest)
            if parents.size(0) == self.store.size(2) and 2 * self.longest <= self.capacity:
                valid.copy_(valid.index_select(2, parents))  # twice, but less than all slots
            else:
                self.store = self.store.index_select(2, parents)
            return
        own = torch.arange(self.store.size(2)) if self.row_index is None else self.row_index
        before = own.unsqueeze(1) if self.ancestors is None else self.ancestors
        ancestors = row_index.unsqueeze(1).repeat(1, self.capacity)
        ancestors[:, : self.longest] = before[parents, : self.longest]
        self.ancestors, self.row_index = ancestors, row_index

    def _numbers_to(self, end: int) -> Tensor:
        if self._numbers is None or end > self._numbers.size(0):
            self._numbers = torch.arange(end, device=self.store.device)
        return self._numbers[:end]

    def _grow(self, needed: int) -> None:
        shape = list(self.store.shape)
        shape[3] = max(needed, 2 * self.capacity)
        grown = self._make(shape, dtype=self.store.dtype, device=self.store.device)
        valid = min(self.longest, self.capacity)
        kept, into = (each.narrow(3, 0, valid) for each in (self.store, grown))
        if self.for_kernels:
            # PyTorch would share a large copy between threads of its own. Such a thread keeps a
            # processor busy for milliseconds, and the kernels' threads wait for it.
            np.copyto(into.numpy(), kept.numpy())
        else:
            into.copy_(kept)
        self.store = grown
        if self.ancestors is not None:
            own = torch.arange(shape[2]) if self.row_index is None else self.row_index
            more = own.unsqueeze(1).expand(-1, shape[3] - self.ancestors.size(1))
            self.ancestors = torch.cat([self.ancestors, more], dim=1)
