"""The layers of a decoder over a fixed number of rows and of new tokens."""

from typing import Any, Optional

import torch
from torch import Tensor

from .cache import StaticCache
from .capture import Replayed
from .tensors import StaticTensors, chosen


def run_new(
    decoder: Any, tensors: StaticTensors, embedded: Tensor, held: Tensor, visible: int,
    limits: Optional[Tensor] = None, beams: int = 1, wanted: Optional[Tensor] = None,
) -> Tensor:  # fmt: skip
    """Run the layers over new vectors of the first rows, as operators that may be captured.

    Args:
        decoder: a :class:`.CachedDecoder`.
        tensors: the batch, whose cache gets the keys and values.
        embedded: (rows, new, dim).
        held: (rows,) long, what each row has in the cache.
        visible: slots that a query may see, rounded up.
        limits: (rows, new) long, how many slots each query sees; None: those up to its own.
        beams: rows of each sentence.
        wanted: (rows, some, 1) long, indices of the vectors whose outputs are wanted; None: all.

    Returns:
        (rows, new or some, output dim).
    """
    rows, new, _ = embedded.shape
    found: Tensor
    if decoder.runs_fused(rows * new):
        found = decoder.run_fused(embedded, held, limits, tensors, beams, wanted)
        return found.view(rows, new if wanted is None else wanted.size(1), -1)
    slots, sentences = tensors.slots[:visible], rows // beams
    if limits is None:
        limits = held.unsqueeze(1) + tensors.slots[:new] + 1
    cache = StaticCache(tensors, rows)
    cache.look(held, new, slots)
    found = decoder.run_layers(
        embedded.flatten(0, 1),
        rows,
        cache,
        tensors.mask(slots < limits.unsqueeze(2)),
        tensors.source_kv[:, :sentences],
        tensors.source_mask[:sentences],
    ).view(rows, new, -1)
    return found if wanted is None else chosen(found, wanted)


class StaticLayers:
    """Runs the layers of a decoder over new vectors of some rows.

    It holds neither the decoder nor the batch, which hold it.

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
        self._rows, self._beams, self._visible = sentences * beams, beams, visible
        self._hidden = tensors.store.new_zeros(self._rows, new, decoder.width)
        self._limits: Optional[Tensor] = None
        if limited:
            self._limits = tensors.lengths.new_ones(self._rows, new)
        self._output: Optional[Tensor] = None
        self._replayed = Replayed(tensors.graphs)

    def run(
        self,
        decoder: Any,
        tensors: StaticTensors,
        embedded: Tensor,
        lengths: Tensor,
        limits: Optional[Tensor],
    ) -> Tensor:
        """Run the layers.

        Args:
            decoder: as above.
            tensors: as above.
            embedded: (rows, new, dim), of at most as many rows and vectors as here.
            lengths: (rows,) long.
            limits: (rows, new) long, where queries have limits.

        Returns:
            (rows, new, output dim), which the next call overwrites.
        """
        rows, new, _ = embedded.shape
        self._hidden[:rows, :new].copy_(embedded)
        tensors.set_lengths(lengths, self._rows)
        if self._limits is not None and limits is not None:
            self._limits[:rows, :new].copy_(limits)
        self._replayed(lambda: self._work(decoder, tensors))
        assert self._output is not None
        return self._output[:rows, :new]

    def _work(self, decoder: Any, tensors: StaticTensors) -> None:
        held = tensors.lengths[: self._rows]
        found = run_new(
            decoder, tensors, self._hidden, held, self._visible, self._limits, self._beams
        )
        if self._output is None:
            with torch.inference_mode(False):
                self._output = torch.empty_like(found)
        self._output.copy_(found)
