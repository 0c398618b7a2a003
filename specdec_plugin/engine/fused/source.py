"""What a decoder looks at of short sources, in one kernel, for CUDA devices."""

from typing import Any, Optional

import torch
from torch import Tensor

from ..early_launch import launch_options
from ..linear import Linear
from ..triton_kernels import power, supports, tried
from .flow import DIM, Split, most_symbols


def fused_source(linear: Linear, layers: int, heads: int) -> "Optional[FusedSource]":
    """The kernel, tried once; None where it does not run.

    Args:
        linear: gives keys and values of all layers, on the device to run on.
        layers: of the decoder.
        heads: of the attention.
    """
    weight = linear.weight
    outer, dim = weight.shape
    # No copy may be made of weights: kernels read them before they wait for others.
    usable = weight.is_contiguous() or weight.device.type == "cpu"
    if not (usable and supports(weight) and dim <= DIM and outer == 2 * layers * dim):
        return None

    def make() -> FusedSource:
        found = FusedSource(linear, heads)
        found.attempt()
        return found

    return tried("A decoder's source", make)


class FusedSource:
    """Makes keys, values and mask of sources.

    What it does depends on shapes alone, and never waits for the device: it can be captured.

    Args:
        linear: (dim) to (2 * layers * dim): keys and values of the layers, one after another.
        heads: of the attention.

    Attributes:
        most: source positions of a batch at a time, with those that only the outputs have.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self, linear: Linear, heads: int) -> None:
        from . import source_kernels

        self._kernel: Any = source_kernels.keys_and_values
        self._linear, self._heads = linear, heads
        self._options = launch_options(linear.weight.device)
        self.most = most_symbols(linear.weight)

    def attempt(self) -> None:
        """Run the kernel once, with few positions and with most of them."""
        weight = self._linear.weight
        outer, dim = weight.shape
        shapes = [(1, 1, 1), (2, 1, 2)]
        if weight.device.type == "cuda":  # An interpreter takes half a minute for so many.
            shapes += [(1, slots - 1, slots) for slots in (32, self.most) if slots <= self.most]
        for rows, source, slots in shapes:
            outputs = weight.new_empty(outer // dim, rows, self._heads, slots, dim // self._heads)
            mask = weight.new_empty(rows, 1, 1, slots)
            padded = torch.zeros(rows, source, dtype=torch.bool, device=weight.device)
            self.run(weight.new_zeros(rows, source, dim), padded, outputs, mask)

    def run(self, encoded: Tensor, padded: Tensor, outputs: Tensor, mask: Tensor) -> None:
        """Write keys, values and mask of all of a batch's rows.

        Args:
            encoded: (rows, src, dim) contiguous, anything where padded.
            padded: (rows, src) contiguous, true where padded.
            outputs: (2 * layers, rows, heads, src or more, head_dim) contiguous, is written.
            mask: (rows, 1, 1, src or more) contiguous, is written.
        """
        (rows, source, dim), slots = encoded.shape, outputs.size(3)
        weight, bias = self._linear.weight, self._linear.bias
        split = Split.of(rows * slots, dim)
        grid = -(-weight.size(0) // split.lines), -(-rows * slots // split.together)
        with torch.cuda.device_of(encoded):  # Triton launches on the current device.
            self._kernel[grid](
                encoded, padded.view(torch.uint8), weight.contiguous(), bias, outputs, mask,
                rows, source, slots, weight.size(0), self._heads, dim // self._heads,
                bias is not None, split.lines, split.together, split.block, power(source),
                num_warps=split.warps, **self._options,
            )  # fmt: skip
