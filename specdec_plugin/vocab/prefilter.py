"""Ruling symbols out with 8-bit scores before the others are scored in float32."""

import ctypes
import os
from typing import Tuple

import torch
from torch import Tensor

from ..engine.linear import NativeLinear
from ..engine.native.interface import field, structure
from ..engine.output_projection import OutputProjection
from ..engine.packed_files import Place
from ..engine.weights import packing


@structure
class ErrorBound(ctypes.Structure):
    """What bounds the error of scores that 8-bit weights and inputs give; see error_bound.h."""

    weight_error = field("float", "the greatest |w - v| of all symbols, float32's error included")
    weight_norm = field("float", "the greatest |v|")


class Prefilter:
    """An 8-bit form of a projection, and the float32 weights behind it.

    Args:
        projection: one that the kernels run.

    Attributes:
        version: of the projection's weights.
        weight: (vocabulary, dim) float32.
        bias: (vocabulary,) float32, or None.
        rounded: the projection with 8-bit weights and inputs.
        error_bound: what bounds the difference between the two, with a state.
    """

    def __init__(self, projection: OutputProjection) -> None:
        self.version = projection.version
        self.weight, self.bias = projection.float_weights()
        with packing():
            biases = None if self.bias is None else [self.bias]
            self.rounded = NativeLinear([self.weight], biases, torch.int8)
            self.error_bound = _kept_error_bound(self.weight)
        projection.forget_pages()


def _kept_error_bound(weight: Tensor) -> ErrorBound:
    """:func:`error_bound`, which may be kept beside the checkpoint."""
    place = Place.of([weight], "error bound")
    kept = None if place is None else place.read(lambda file: os.read(file, _BYTES))
    if kept is not None and len(kept) == _BYTES:
        return ErrorBound.from_buffer_copy(kept)
    bound = error_bound(weight)
    if place is not None:
        place.write(lambda file: os.write(file, bytes(bound)) == _BYTES)
    return bound


_BYTES = ctypes.sizeof(ErrorBound)


def error_bound(weight: Tensor) -> ErrorBound:
    """What 8-bit rounding and float32's own do to (vocabulary, dim) weights, at most."""
    greatest = [_greatest_norms(part) for part in weight.split(_AT_ONCE)]
    plain, rounded, apart = (max(norms) for norms in zip(*greatest))
    # A sum of n products is off by n roundings at most, each of half this; half is reserve.
    unit = torch.finfo(torch.float32).eps
    return ErrorBound(apart + (weight.size(1) + 8) * unit * plain, rounded)


#: Symbols whose weights are rounded at once, so that a large vocabulary takes little memory.
_AT_ONCE = 8192


def _greatest_norms(weight: Tensor) -> Tuple[float, float, float]:
    """Of (symbols, dim) weights, of their rounded form, and of the difference."""
    step = weight.abs().amax(1, keepdim=True) / 127
    levels = torch.where(step > 0, 1 / step, 0)
    rounded = (weight * levels).round_().mul_(step)
    norms = [each.norm(dim=1).max() for each in (weight, rounded, weight - rounded)]
    return float(norms[0]), float(norms[1]), float(norms[2])
