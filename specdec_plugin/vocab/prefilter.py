"""Ruling symbols out with 8-bit scores before the others are scored in float32."""

import ctypes

import torch
from torch import Tensor

from ..engine.linear import NativeLinear
from ..engine.native.interface import field, structure
from ..engine.output_projection import OutputProjection
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
            self.error_bound = error_bound(self.weight)


def error_bound(weight: Tensor) -> ErrorBound:
    """What 8-bit rounding and float32's own do to (vocabulary, dim) weights, at most."""
    step = weight.abs().amax(1, keepdim=True) / 127
    levels = torch.where(step > 0, 1 / step, 0)
    rounded = (weight * levels).round_().mul_(step)
    # A sum of n products is off by n roundings at most, each of half this; half is reserve.
    unit = torch.finfo(torch.float32).eps
    sums = (weight.size(1) + 8) * unit * weight.norm(dim=1).max()
    apart = (weight - rounded).norm(dim=1).max() + sums
    return ErrorBound(float(apart), float(rounded.norm(dim=1).max()))
