"""Several steps of greedy decoding that follow one another without the host."""

from typing import Any

import torch
from torch import Tensor

from .capture import Replayed
from .layers import run_new
from .tensors import StaticTensors


def feed(
    decoder: Any, tensors: StaticTensors, fed: Tensor, starts: Tensor, visible: int,
    beams: int = 1,
) -> Tensor:  # fmt: skip
    """Feed each row a token, without a look at any number.

    Args:
        decoder: a :class:`.CachedDecoder`; positions are within :meth:`.TargetEmbedding.reach`.
        tensors: the batch.
        fed: (rows, 1) long.
        starts: (rows,) long, what each row has in the cache.
        visible: slots that a query may see, rounded up.
        beams: rows of each sentence.

    Returns:
        (rows, output dim).
    """
    embedded = decoder.embedding.of_tokens_within(fed, starts)
    return run_new(decoder, tensors, embedded, starts, visible, beams=beams).flatten(0, 1)


def greedy(
    decoder: Any, tensors: StaticTensors, fed: Tensor, starts: Tensor, count: int, visible: int,
    suppressed_id: int,
) -> Tensor:  # fmt: skip
    """Some steps of greedy decoding, each fed with what the one before chose.

    Args:
        decoder: a :class:`.CachedDecoder`; positions are within :meth:`.TargetEmbedding.reach`.
        tensors: the batch.
        fed: (rows, 1) long, what each row is fed first.
        starts: (rows,) long, what each row has in the cache.
        count: tokens to choose. The last one is fed, too, for its keys and values.
        visible: slots that a query may see, rounded up.
        suppressed_id: a symbol that is not chosen.

    Returns:
        (rows, count) long.
    """
    chosen = []
    for _ in range(count):
        hidden = feed(decoder, tensors, fed, starts, visible)
        fed = decoder.projection.best(hidden, suppressed_id).unsqueeze(1)
        chosen.append(fed)
        starts = starts + 1
    feed(decoder, tensors, fed, starts, visible)
    return torch.cat(chosen, dim=1)


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
        starts = tensors.lengths[:rows]
        found = greedy(
            decoder, tensors, self._first, starts, count, self._visible, self._suppressed_id
        )
        self._chosen.copy_(found)
