"""Ruling symbols out with 8-bit scores before the others are scored in float32."""

import ctypes

import torch

from ..engine import native
from ..engine.linear import NativeLinear
from ..engine.native.interface import Header, field, structure
from ..engine.output_projection import OutputProjection
from ..engine.threads import kernel_threads


@structure
class ErrorBound(ctypes.Structure):
    """What bounds the error of scores that 8-bit weights and inputs give; see error_bound.h."""

    weight_error = field("float", "at least |w - v| of each symbol, and float32's own error")
    weight_norm = field("float", "at least |v| of each symbol")


@structure
class PrefilterCall(ctypes.Structure):
    """What scores symbols with 8-bit weights, and some of them exactly; see rescoring.h."""

    rounded = field("const Linear*", "scores all symbols with 8-bit weights; or null: nobody does")
    error_bound = field("ErrorBound", "of these scores")
    weights = field(
        "const float*", "(vocabulary, dim) of the exact projection; or null: packed ones"
    )
    mean = field("const float*", "(dim + 1) of the exact projection; see mean_score.h")


Header(__file__, "error_bound.h")
Header(__file__, "mean_score.h")
Header(__file__, "rescoring.h")


class Prefilter:
    """An 8-bit form of a projection.

    Args:
        projection: one that the kernels run in float32 or bfloat16.

    Attributes:
        version: of the projection's weights.
        rounded: the projection with 8-bit weights and inputs.
        error_bound: what bounds the difference between the two, with a state.
        mean: (dim + 1,) the mean of the exact weights of all symbols, and that of their biases.
        weights: (vocabulary, dim) as the model has them, or None; see the projection's ``rows``.
            Packed ones have those of a symbol far apart, which makes single scores slow.
    """

    def __init__(self, projection: OutputProjection) -> None:
        self.version = projection.version
        exact, rounded = projection.native, projection.packed(torch.int8)
        assert isinstance(exact, NativeLinear) and isinstance(rounded, NativeLinear)
        self.rounded = rounded
        self.weights = projection.rows()
        self.error_bound = ErrorBound()
        self.mean = torch.empty(exact.inputs + 1, dtype=torch.float32)
        threads = kernel_threads()
        native.library().error_bound_of(exact.handle, ctypes.byref(self.error_bound), threads)
        native.library().mean_row_of(exact.handle, self.mean.data_ptr(), threads)

    def describe(self) -> PrefilterCall:
        """Describe it for the kernels, as long as it lives."""
        return PrefilterCall(
            rounded=self.rounded.handle,
            error_bound=self.error_bound,
            weights=None if self.weights is None else self.weights.data_ptr(),
            mean=self.mean.data_ptr(),
        )
