"""An encoder of short sources, in five kernels a layer, for CUDA devices."""

from typing import Any, Optional, Protocol, Sequence

import torch
from torch import Tensor

from ..decoder_layer import FeedForward, Norm
from ..early_launch import launch_options
from ..linear import Linear
from ..triton_kernels import power, tried
from .flow import Among, Flow, fits, most_symbols


class Layer(Protocol):
    """Self-attention and feed-forward: an :class:`.EncoderLayer`."""

    heads: int
    norm_first: bool
    own_in: Linear
    own_out: Linear
    own_norm: Norm
    feed_forward: FeedForward


def fused_encoder(
    layers: Sequence[Layer], final: Optional[Norm], embedding: Tensor, scale: float, pad: int
) -> "Optional[FusedEncoder]":
    """An encoder in kernels, tried once; None where they do not run.

    Args:
        layers: of it, on the device to run on.
        final: what follows them.
        embedding: (vocabulary, dim).
        scale: of its vectors.
        pad: the symbol of padding.
    """
    if not all(fits(layer.feed_forward, layer.own_in, layer.own_out) for layer in layers):
        return None

    def make() -> FusedEncoder:
        found = FusedEncoder(layers, final, embedding, scale, pad)
        found.attempt()
        return found

    return tried("An encoder", make)


class FusedEncoder:
    """Encodes short sources.

    What it does depends on shapes alone, and never waits for the device: it can be captured.

    Args:
        layers: of the encoder.
        final: what follows them.
        embedding: (vocabulary, dim).
        scale: of its vectors.
        pad: the symbol of padding.

    Attributes:
        most: symbols at a time, padding among them.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(
        self,
        layers: Sequence[Layer],
        final: Optional[Norm],
        embedding: Tensor,
        scale: float,
        pad: int,
    ) -> None:
        from . import embedding_kernels, layer_kernels

        self._kernels: Any = layer_kernels
        self._embed: Any = embedding_kernels.embed_source
        self._layers, self._final = layers, final
        self._embedding, self._scale, self._pad = embedding.contiguous(), scale, pad
        self._options = launch_options(embedding.device)
        self.most = min(
            most_symbols(each.weight)
            for layer in layers
            for each in (layer.own_in, layer.feed_forward.inner)
        )

    def attempt(self) -> None:
        """Run each kernel once, with few symbols and with most of them."""
        device = self._embedding.device
        trials = [(1, 1), (2, 2)]
        if device.type == "cuda":  # An interpreter takes half a minute for so many.
            trials += [(1, most) for most in (8, 24, self.most) if most <= self.most]
        for shape in trials:
            tokens = torch.full(shape, self._pad, device=device)
            self.run(tokens, self._embedding[:1], None)

    def run(self, tokens: Tensor, table: Optional[Tensor], first: Optional[Norm]) -> Tensor:
        """Encode sources.

        Args:
            tokens: (rows, src) long, of at most :attr:`most` symbols.
            table: (positions, dim), or None.
            first: what follows the embedding.

        Returns:
            (rows, src, dim), anything where padded.
        """
        (rows, source), dim = tokens.shape, self._embedding.size(1)
        # PyTorch's operator refuses symbols that are in no dictionary.
        vectors = torch.embedding(self._embedding, tokens)
        hidden, mask = vectors.new_empty(rows * source, dim), vectors.new_empty(rows, source)
        with torch.cuda.device_of(hidden):  # Triton launches on the current device.
            self._embed[(rows * source,)](
                tokens.contiguous(), vectors, table, mask, hidden, source,
                0 if table is None else table.size(0), self._scale, self._pad, dim,
                table is not None, power(dim), power(source), **self._options,
            )  # fmt: skip
            flow = Flow(self._kernels, self._options, hidden if first is None else first(hidden))
            for layer in self._layers:
                flow.enter(layer.own_in, layer.own_norm, layer.norm_first)
                flow.attend(layer.heads, (rows, source), Among(mask))
                flow.leave(layer.own_out)
                flow.feed_forward(layer.feed_forward)
            return flow.end(self._final, (rows, source)).view(rows, source, dim)
