"""Several steps of greedy decoding that follow one another without the host."""

from typing import Any

import torch
from torch import Tensor

from .cache import StaticCache
from .tensors import StaticTensors


class StaticSteps:
    """Greedy steps of some rows, each fed with what the one before chose.

    Args:
        decoder: a :class:`.CachedDecoder`.
        tensors: the batch.
        rows: how many, rounded up.
        steps: tokens to choose.
        visible: slots that a query may see, rounded up.
        suppressed_id: a symbol that is not chosen.
        positions: vectors that the decoder's table has. A captured graph reads this table alone.
    """

    def __init__(
        self,
        decoder: Any,
        tensors: StaticTensors,
        rows: int,
        steps: int,
        visible: int,
        suppressed_id: int,
        positions: int,
    ) -> None:
        self._decoder, self._tensors = decoder, tensors
        self._suppressed_id, self.positions = suppressed_id, positions
        self._slots = tensors.slots[:visible]
        device = tensors.store.device
        self._first = torch.zeros(rows, 1, dtype=torch.long, device=device)
        self._chosen = torch.zeros(rows, steps, dtype=torch.long, device=device)
        self._cache = StaticCache(tensors, rows)
        self._run = tensors.replayed(self._work)

    def __call__(self, first: Tensor, lengths: Tensor) -> Tensor:
        """Choose tokens.

        Args:
            first: (rows, 1) long, what each row is fed first; of at most as many rows as here.
            lengths: (rows,) long.

        Returns:
            (rows, steps) long, which the next call overwrites.
        """
        rows = first.size(0)
        self._first[:rows].copy_(first)
        self._tensors.set_lengths(lengths, self._first.size(0))
        self._run()
        return self._chosen[:rows]

    def _work(self) -> None:
        decoder, tensors, fed = self._decoder, self._tensors, self._first
        rows = fed.size(0)
        starts = tensors.lengths[:rows]
        for step in range(self._chosen.size(1)):
            hidden = decoder.embed_within(fed, starts).flatten(0, 1)
            self._cache.look(starts, 1, self._slots)
            hidden = decoder.run_layers(
                hidden,
                rows,
                self._cache,
                (self._slots <= starts.unsqueeze(1))[:, None, None],
                tensors.source_kv[:, :rows],
                tensors.source_mask[:rows],
            )
            scores = decoder.projection.scores(hidden.unsqueeze(1), 1.0, self._suppressed_id)
            fed = scores.values.argmax(2)
            self._chosen[:, step] = fed.squeeze(1)
            starts = starts + 1
