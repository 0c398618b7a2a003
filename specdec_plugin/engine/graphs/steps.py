"""Several steps of greedy decoding that follow one another without the host."""

from typing import Any

from torch import Tensor

from .cache import StaticCache
from .capture import Replayed
from .tensors import StaticTensors


class StaticSteps:
    """Takes greedy steps of some rows, each fed with what the one before chose.

    It holds neither the decoder nor the batch, which hold it. It is captured at once: one by one,
    its operators would be thousands.

    Args:
        tensors: the batch.
        rows: how many, rounded up.
        count: tokens to choose.
        visible: slots that a query may see, rounded up.
        suppressed_id: a symbol that is not chosen.
    """

    def __init__(
        self, tensors: StaticTensors, rows: int, count: int, visible: int, suppressed_id: int
    ) -> None:
        self._visible, self._suppressed_id = visible, suppressed_id
        self._first = tensors.lengths.new_zeros(rows, 1)
        self._chosen = tensors.lengths.new_zeros(rows, count)
        self._replayed = Replayed(tensors.graphs, at=1)

    def run(self, decoder: Any, tensors: StaticTensors, first: Tensor, lengths: Tensor) -> Tensor:
        """Choose tokens.

        Args:
            decoder: a :class:`.CachedDecoder`.
            tensors: as above.
            first: (rows, 1) long, what each row is fed first; of at most as many rows as here.
            lengths: (rows,) long.

        Returns:
            (rows, count) long, which the next call overwrites.
        """
        rows = first.size(0)
        self._first[:rows].copy_(first)
        tensors.set_lengths(lengths, self._first.size(0))
        self._replayed(lambda: self._work(decoder, tensors))
        return self._chosen[:rows]

    def _work(self, decoder: Any, tensors: StaticTensors) -> None:
        rows, count = self._chosen.shape
        starts, slots = tensors.lengths[:rows], tensors.slots[: self._visible]
        cache, fed = StaticCache(tensors, rows), self._first
        for step in range(count + 1):
            cache.look(starts, 1, slots)
            hidden = decoder.run_layers(
                decoder.embed_within(fed, starts).flatten(0, 1),
                rows,
                cache,
                tensors.mask((slots <= starts.unsqueeze(1)).unsqueeze(1)),
                tensors.source_kv[:, :rows],
                tensors.source_mask[:rows],
            )
            if step == count:  # The last token was fed for its keys and values.
                break
            fed = decoder.projection.best(hidden, self._suppressed_id).unsqueeze(1)
            self._chosen[:, step] = fed.squeeze(1)
            starts = starts + 1
