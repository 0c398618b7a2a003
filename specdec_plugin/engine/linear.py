"""A matrix product with fixed weights, laid out once for many small calls."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

# In elements, for float32.  Below SMALL the plain layout is as fast and saves the copy; from
# LARGE on a matrix comes from memory, and the packed layout is as fast for one row too.
SMALL = 1 << 17
LARGE = 1 << 20


class Linear:
    """``inputs @ weight.T + bias`` for inputs of few rows.

    On a CPU with oneDNN the weight is kept in oneDNN's own blocked layout: at 2 to
    30 rows, the width of a verified draft, that is 1.3 to 2 times as fast as the plain
    layout, which is packed anew in every call.  One row in float32 is faster without.

    Args:
        weight: (outputs, inputs), already in the dtype and on the device to run in.
        bias: (outputs,) or ``None``.
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        outputs, inputs = weight.shape
        single = weight.dtype == torch.float32
        self._bias = bias
        self._packed = _pack(weight) if weight.numel() >= SMALL or not single else None
        self._packed_from = 2 if single and weight.numel() < LARGE else 1
        if self._packed is not None and self._packed_from == 1:
            weight = weight.new_empty(0, inputs)  # never read
        elif single and inputs < outputs and weight.device.type == "cpu":
            # A product with one row reads the matrix along its longer side fastest.
            weight = weight.t().contiguous().t()
        self._weight = weight

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply.

        Args:
            inputs: (rows, inputs).

        Returns:
            (rows, outputs).
        """
        if self._packed is None or inputs.size(0) < self._packed_from:
            return F.linear(inputs, self._weight, self._bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self._bias, "none", [], ""
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
