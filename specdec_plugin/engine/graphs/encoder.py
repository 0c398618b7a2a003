"""A fairseq Transformer encoder on a GPU: one CUDA graph for sources of about one length."""

from typing import Any, List, Mapping, Optional

import torch
from torch import Tensor

from ...fairseq_compat.late_input import on_host
from ..decoder_layer import FeedForward, Norm, attend, every_layer, linear_of
from ..encoder_form import encoder_form
from ..fused.encoder import fused_encoder
from ..positions import PositionTable
from ..symbol_numbers import check_symbols
from ..weights import Packed
from .capture import Graphs
from .encoding import EncoderTensors
from .source import MOST_SYMBOLS
from .tensors import Calls, rounded

#: Source positions are multiples of this.
_GRAIN = 8


class EncoderLayer:
    """Self-attention and feed-forward.

    Args:
        layer: the fairseq layer, a plain one.
        dtype: type to run in.
    """

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        own = layer.self_attn
        self.heads, self.norm_first = own.num_heads, layer.normalize_before
        self.own_in = linear_of(dtype, own.q_proj, own.k_proj, own.v_proj)
        self.own_out = linear_of(dtype, own.out_proj)
        self.own_norm = Norm(layer.self_attn_layer_norm, dtype)
        self.feed_forward = FeedForward(layer, dtype)

    def __call__(self, hidden: Tensor, rows: int, mask: Tensor) -> Tensor:
        """Compute the layer.

        Args:
            hidden: (rows * src, dim); not changed.
            rows: of the batch.
            mask: (rows, 1, 1, src), 0 or -inf.

        Returns:
            (rows * src, dim).
        """
        before = self.own_norm(hidden) if self.norm_first else hidden
        parts = self.own_in(before).view(rows, mask.size(3), 3, self.heads, -1)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4).unbind(0)
        after = attend(queries, keys, values, mask, self.own_out).add_(hidden)
        return self.feed_forward(after if self.norm_first else self.own_norm(after))


class CapturedEncoder(Packed):
    """Encodes with sources padded to few lengths.

    Args:
        encoder: fairseq's encoder, of plain layers and embeddings.
    """

    def __init__(self, encoder: Any) -> None:
        super().__init__(encoder)
        self.encoder = encoder
        self.repack()

    def _pack(self) -> None:
        encoder, weight = self.encoder, self.encoder.embed_tokens.weight
        dtype = weight.dtype
        self._embedding, self._pad = weight.detach(), encoder.padding_idx
        self._scale = float(encoder.embed_scale)
        self._positions: Optional[PositionTable] = None
        if encoder.embed_positions is not None:
            self._positions = PositionTable(encoder.embed_positions, dtype, "source")
        norms = encoder.layernorm_embedding, encoder.layer_norm
        self._first, self._last = (each and Norm(each, dtype) for each in norms)
        self._layers = [EncoderLayer(layer, dtype) for layer in every_layer(encoder)]
        self._fused = fused_encoder(
            self._layers, self._last, self._embedding, self._scale, self._pad
        )
        self._graphs, self._calls = Graphs.of(weight.device), Calls()

    def __call__(self, net_input: Mapping[str, Any]) -> Mapping[str, List[Tensor]]:
        """Encode a batch.

        Args:
            net_input: fairseq's ``src_tokens`` (rows, src) and ``src_lengths`` (rows,).

        Returns:
            as fairseq, with anything at padded positions.

        Raises:
            PluginError: a learned position table ends before, or a symbol that came from the host
                is not in the model's dictionary.
        """
        self.refresh()
        given = on_host(net_input)["src_tokens"]
        if given.is_cpu:
            numbers, symbols = given.reshape(-1).tolist(), self._embedding.size(0)
            check_symbols(numbers, symbols, "The source", "--srcdict")
        rows, length = given.shape
        table: Optional[Tensor] = None
        if self._positions is not None:
            longest = length
            if not self._positions.holds(length):  # but padding needs none
                longest = int(given.ne(self._pad).sum(1).max())
            table = self._positions.reach(0, longest)
        if rows * length > MOST_SYMBOLS:
            tokens = net_input["src_tokens"]
            encoded, padding = self._encoded(tokens, table), tokens.eq(self._pad)
            return encoder_form(encoded, padding, net_input["src_lengths"])
        sizes = rounded(rows), rounded(length, _GRAIN)
        tensors: EncoderTensors = self._calls.get(
            (*sizes, table), lambda: EncoderTensors(*sizes, self._pad, self._graphs)
        )
        return tensors.encode(net_input, lambda padded: self._encoded(padded, table))

    def _resized(self) -> bool:
        return bool(self.encoder.embed_tokens.weight.shape != self._embedding.shape)

    def _encoded(self, tokens: Tensor, table: Optional[Tensor]) -> Tensor:
        """(rows, src, dim) of (rows, src) tokens, and (positions, dim) or None."""
        if self._fused is not None and tokens.numel() <= self._fused.most:
            return self._fused.run(tokens, table, self._first)
        real = tokens.ne(self._pad)
        hidden = self._scale * torch.embedding(self._embedding, tokens)
        if table is not None:
            # fairseq numbers the symbols that are no padding, wherever that is.
            numbers = (real.cumsum(1) - 1).clamp_(0, table.size(0) - 1)
            hidden = hidden + torch.embedding(table, numbers)
        if self._first is not None:
            hidden = self._first(hidden)
        mask = torch.where(real, 0.0, float("-inf")).to(hidden.dtype)[:, None, None, :]
        shape, hidden = hidden.shape, hidden.flatten(0, 1)
        for layer in self._layers:
            hidden = layer(hidden, shape[0], mask)
        if self._last is not None:
            hidden = self._last(hidden)
        return hidden.view(shape)
