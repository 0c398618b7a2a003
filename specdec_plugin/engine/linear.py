"""A matrix product with fixed weights, laid out once for many small calls."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

# Matrices of this many elements are read from memory rather than from the cache, so that
# the packed layout, whose call costs some 10 us more, is the faster one even for one token.
LARGE = 1 << 20


class Linear:
    """``inputs @ weight.T + bias`` for inputs of few rows.

    On a CPU with oneDNN the weight is kept in oneDNN's own blocked layout: at 2 to
    30 rows, the width of a verified draft, that is 1.4 to 2 times as fast as the plain
    layout, which is packed anew in every call.  One single row is faster without.

    Args:
        weight: (outputs, inputs), already in the dtype and on the device to run in.
        bias: (outputs,) or ``None``.
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        outputs, inputs = weight.shape
        self.bias = bias
        self._packed = _pack(weight)
        self._large = weight.numel() >= LARGE
        if self._packed is None or self._large or inputs >= outputs:
            self._weight = weight
        else:
            # A product with one row reads the matrix along its longer side fastest.
            self._weight = weight.t().contiguous().t()

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply.

        Args:
            inputs: (rows, inputs).

        Returns:
            (rows, outputs).
        """
        if self._packed is None or (inputs.size(0) == 1 and not self._large):
            return F.linear(inputs, self._weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, "none", [], ""
        )
        return product


def _pack(weight: Tensor) -> Optional[Tensor]:
    """``weight`` in oneDNN's layout; ``None`` where this build or device has none.

    These are the operators that ``torch.compile`` itself uses for frozen weights
    on CPUs; they are not documented, so any refusal means the plain layout.
    """
    if weight.device.type != "cpu" or weight.dtype == torch.float64:
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        probe = weight.new_zeros(2, weight.size(1))
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (RuntimeError, AttributeError):
        return None
    return packed
