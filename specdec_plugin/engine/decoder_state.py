"""What a batch in progress holds between the calls of its decoder."""

from typing import Optional

import torch
from torch import Tensor

from ..models.proposal_heads import Source
from .kv_cache import KVCache


class DecoderState:
    """What a batch in progress holds: its cache and the source's cross-attention keys and values.

    Attributes:
        cache: self-attention keys and values.
        source_kv: keys and values of the source for each layer, one tensor, contiguous for the
            kernels: (2 * layers, sentences, heads, src, head_dim).
        source_mask: (sentences, 1, 1, src), 0 or -inf; ``None`` if no sentence is padded.
        source_lengths: (sentences,) symbols of each, which come first; for the kernels, likewise.
        beams: rows that each sentence may have; see :meth:`fork`.

    If the cache is one for the kernels, sentences stay where they are when rows leave: the
    sentence of a row is ``cache.row_index // beams``. Else rows follow each other by sentence.
    """

    def __init__(
        self,
        cache: KVCache,
        source_kv: Tensor,
        source_mask: Optional[Tensor],
        source_lengths: Optional[Tensor],
        beams: int,
    ) -> None:
        self.cache = cache
        self.source_kv = source_kv
        self.source_mask, self.source_lengths = source_mask, source_lengths
        self.beams = beams
        if beams > 1 and cache.for_kernels:  # the first beam of each sentence begins
            cache.select(torch.arange(0, cache.rows, beams))

    def read_by_heads(self, dtype: torch.dtype) -> Source:
        """What the last layer knows of each row's source, for proposal heads of this type."""
        last, mask, index = self.source_kv[-2:], self.source_mask, self.cache.row_index
        if index is not None:
            last = last.index_select(1, index)
            mask = None if mask is None else mask.index_select(0, index)
        last = last.to(dtype)
        return Source(last[0], last[1], None if mask is None else mask.to(dtype))

    @property
    def lengths(self) -> Tensor:
        """(rows,) long, accepted tokens of each row."""
        return self.cache.lengths

    @property
    def longest(self) -> int:
        """Upper bound of :attr:`lengths`, known to the host."""
        return self.cache.longest

    def keep(self, lengths: Tensor, longest: int) -> None:
        """Declare how many tokens of each row are accepted; see :meth:`KVCache.keep`."""
        self.cache.keep(lengths, longest)

    def select(self, rows: Tensor) -> None:
        """Keep these rows only, in this order.

        Args:
            rows: (kept,) long, on the decoder's device.
        """
        self.cache.select(rows)
        self._select_sources(rows)

    def fork(self, parents: Tensor, sentences: Tensor, left: Optional[Tensor] = None) -> None:
        """Continue with :attr:`beams` rows a sentence, each with a row's cache.

        Args:
            parents: (sentences * beams,) long, indices of rows, by sentence; they may repeat.
            sentences: (sentences,) long, indices in the batch of those that are left.
            left: (sentences,) long, their indices among those before; None: all are left.
        """
        own = sentences.unsqueeze(1) * self.beams
        own = own + torch.arange(self.beams, device=own.device)
        self.cache.fork(parents, own.flatten())
        if left is not None:
            self._select_sources(left)

    def _select_sources(self, sentences: Tensor) -> None:
        if self.cache.for_kernels:
            return
        self.source_kv = self.source_kv.index_select(1, sentences)
        if self.source_mask is not None:
            self.source_mask = self.source_mask.index_select(0, sentences)
