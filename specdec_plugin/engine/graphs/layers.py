"""The layers of a decoder over a fixed number of rows and of new tokens."""

from typing import Any, Optional

import torch
from torch import Tensor

from .cache import StaticCache
from .tensors import StaticTensors


class StaticLayers:
    """The layers of a decoder over new vectors of some rows.

    Args:
        decoder: a :class:`.CachedDecoder`.
        tensors: the batch.
        sentences: how many, rounded up.
        beams: rows of each.
        new: vectors of each row, rounded up.
        visible: slots that a query may see, rounded up.
        limited: whether queries have limits of their own, or else are causal.
    """

    def __init__(
        self,
        decoder: Any,
        tensors: StaticTensors,
        sentences: int,
        beams: int,
        new: int,
        visible: int,
        limited: bool,
    ) -> None:
        self.rows, self.new = sentences * beams, new
        self._decoder, self._tensors = decoder, tensors
        self._sentences = sentences
        self._slots = tensors.slots[:visible]
        self._hidden = tensors.store.new_zeros(self.rows, new, decoder.width)
        self._limits: Optional[Tensor] = None
        if limited:
            self._limits = tensors.lengths.new_ones(self.rows, new)
        self._cache = StaticCache(tensors, self.rows)
        self._output: Optional[Tensor] = None
        self._run = tensors.replayed(self._work)

    def __call__(self, embedded: Tensor, lengths: Tensor, limits: Optional[Tensor]) -> Tensor:
        """Run the layers.

        Args:
            embedded: (rows, new, dim), of at most as many rows and vectors as here.
            lengths: (rows,) long.
            limits: (rows, new) long, where queries have limits.

        Returns:
            (rows, new, output dim), which the next call overwrites.
        """
        rows, new, _ = embedded.shape
        self._hidden[:rows, :new].copy_(embedded)
        self._tensors.set_lengths(lengths, self.rows)
        if self._limits is not None and limits is not None:
            self._limits[:rows, :new].copy_(limits)
        self._run()
        assert self._output is not None
        return self._output[:rows, :new]

    def _work(self) -> None:
        tensors, lengths = self._tensors, self._tensors.lengths[: self.rows]
        limits = self._limits
        if limits is None:
            limits = lengths.unsqueeze(1) + tensors.slots[: self.new] + 1
        mask = (self._slots < limits.unsqueeze(2)).unsqueeze(1)  # (rows, 1, new, visible)
        self._cache.look(lengths, self.new, self._slots)
        found = self._decoder.run_layers(
            self._hidden.flatten(0, 1),
            self.rows,
            self._cache,
            mask,
            tensors.source_kv[:, : self._sentences],
            tensors.source_mask[: self._sentences],
        )
        found = found.view(self.rows, self.new, -1)
        if self._output is None:
            with torch.inference_mode(False):
                self._output = torch.empty_like(found)
        self._output.copy_(found)
