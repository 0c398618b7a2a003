"""The layers of a decoder that is fed few vectors, in eight kernels each, for CUDA devices."""

from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from ..decoder_layer import DecoderLayer, Norm
from ..early_launch import launch_options
from ..graphs.capture import Graphs
from ..graphs.tensors import GRAIN, Shape, Sizes, StaticTensors
from ..triton_kernels import tried
from .flow import TOGETHER, Flow, Own, Source, fits, most_vectors


def fused_layers(layers: Sequence[DecoderLayer], final: Optional[Norm]) -> "Optional[FusedLayers]":
    """The layers in kernels, tried once; None where they do not run.

    Args:
        layers: of a decoder, on the device to run on.
        final: what follows them.
    """
    if not all(_fits(layer) for layer in layers):
        return None

    def make() -> FusedLayers:
        found = FusedLayers(layers, final)
        found.attempt()
        return found

    return tried("A decoder", make)


def _fits(layer: DecoderLayer) -> bool:
    linears = layer.own_in, layer.own_out, layer.source_in, layer.source_out
    return fits(layer.feed_forward, *linears)


class FusedLayers:
    """Runs the layers of a decoder.

    What it does depends on shapes alone, and never waits for the device: it can be captured.

    Args:
        layers: of the decoder.
        final: what follows them.

    Attributes:
        most: vectors at a time.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self, layers: Sequence[DecoderLayer], final: Optional[Norm]) -> None:
        from . import layer_kernels

        self._kernels: Any = layer_kernels
        self._layers, self._final = layers, final
        self._options = launch_options(layers[0].own_in.weight.device)
        _, together = TOGETHER
        self.most = min(
            most_vectors(each.weight, together)
            for layer in layers
            for each in (layer.own_in, layer.feed_forward.inner)
        )

    def attempt(self) -> None:
        """Run each kernel once, with a single vector and with more of them, and with most."""
        layer = self._layers[0]
        weight = layer.own_in.weight
        shape = Shape(len(self._layers), layer.heads, layer.head_dim, weight.dtype, weight.device)
        tensors = StaticTensors(Sizes.of(2, 1, GRAIN, GRAIN), shape, Graphs.of(weight.device))
        trials = [(1, 1, False), (2, 1, False), (2, 2, True)]
        if weight.device.type == "cuda":  # An interpreter takes half a minute for so many.
            trials += [(1, self.most, limited) for limited in (False, True)]
        for rows, new, limited in trials:
            held = tensors.lengths[:rows]
            limits = held.unsqueeze(1) + tensors.slots[:new] + 1 if limited else None
            wanted = tensors.nothing[:rows].view(rows, 1, 1) if limited else None
            vectors = weight.new_zeros(rows, new, weight.size(1))
            self.run(vectors, held, limits, tensors, wanted=wanted)

    def run(
        self,
        hidden: Tensor,
        held: Tensor,
        limits: Optional[Tensor],
        tensors: StaticTensors,
        beams: int = 1,
        wanted: Optional[Tensor] = None,
    ) -> Tensor:
        """Run the layers over new vectors of the first rows of a batch.

        Args:
            hidden: (rows, new, dim), of at most :attr:`most` vectors; not changed.
            held: (rows,) long, what each row has in the cache.
            limits: (rows, new) long, how many slots each query sees; None: those up to its own.
            tensors: the batch, whose cache gets the keys and values.
            beams: rows of each sentence.
            wanted: (rows, some, 1) long, indices of the vectors whose outputs are wanted; None:
                all.

        Returns:
            (rows * new, dim), or (rows * some, dim).
        """
        shape: Sequence[int] = hidden.shape[:2]
        limits = None if limits is None else limits.contiguous()
        flow = Flow(self._kernels, self._options, hidden.flatten(0, 1).contiguous())
        with torch.cuda.device_of(hidden):  # Triton launches on the current device.
            for index, layer in enumerate(self._layers):
                flow.enter(layer.own_in, layer.own_norm, layer.norm_first)
                # Of other vectors, what follows is the last layer's keys and values.
                flowing = wanted if layer is self._layers[-1] else None
                flow.attend(layer.heads, shape, Own(held, limits, tensors.store[index]), flowing)
                if flowing is not None:
                    shape, wanted = (shape[0], flowing.size(1)), None
                flow.leave(layer.own_out)
                flow.enter(layer.source_in, layer.source_norm, layer.norm_first)
                source = tensors.source_kv[2 * index : 2 * index + 2]
                flow.attend(layer.heads, shape, Source(source, tensors.source_mask, beams))
                flow.leave(layer.source_out)
                flow.feed_forward(layer.feed_forward)
            return flow.end(self._final, shape, wanted)
