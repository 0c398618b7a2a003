"""Choosing all tokens of a single row's block in one kernel of Triton, for CUDA devices."""

import math
from typing import Any, Mapping

import torch
from torch import Tensor

from ...engine.triton_kernels import power

#: The least sides of a product of tensor cores, and positions of a block, at most.
_LEAST = POSITIONS = 16
#: Warps of a program, its most lines, and how many numbers of each matrix it holds.
_WARPS, _LINES, _HELD = 8, 64, 1 << 15
#: How often a program looks for what others send, in all: some milliseconds. They send it within
#: microseconds where all run at once, and where they do not, a wrong draft ends the wait.
_PATIENCE = 1 << 14


def whole_block_fits(of_states: Tensor, matrix: Tensor) -> bool:
    """Whether all programs run at once, each with its part of the matrix in registers.

    Args:
        of_states, matrix: see :class:`WholeBlock`.
    """
    lines = _lines(matrix)
    if lines < _LEAST or of_states.dtype.itemsize != 2:
        return False
    held = lines * _width(of_states.size(1)) <= _HELD  # in shared memory, where products take it
    return held and -(-matrix.size(0) // lines) <= _processors(matrix.device)


class WholeBlock:
    """Runs a chain head and the projection behind it over a block.

    Most of the time of a kernel for one position is its launch and its first reads. Here programs
    stay, and send each other what they find.

    What it does depends on shapes alone, and never waits for the device: it can be captured. What
    the programs send each other stays in the same tensors, so that two streams must not run it at
    once.

    Args:
        of_states: (vocabulary + units, dim), what states bring to scores, and to the layer.
        bias: (vocabulary + units,), is added to it.
        by_token: (vocabulary, units), what each token brings into the layer.
        matrix: (vocabulary + units, units), what the layer brings.
        options: of launches.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(
        self,
        of_states: Tensor,
        bias: Tensor,
        by_token: Tensor,
        matrix: Tensor,
        options: Mapping[str, Any],
    ) -> None:
        from . import whole_block_kernels

        self._kernels: Any = whole_block_kernels
        self._tables, self._options = (of_states, bias, by_token, matrix), options
        self._vocabulary, self._units = by_token.shape
        self._lines = _lines(matrix)
        self._parts = -(-self._vocabulary // self._lines)
        # Nothing has been sent: see the kernel.
        self._entering = torch.full(
            (POSITIONS, self._units), math.nan, dtype=torch.float32, device=matrix.device
        )
        self._keys = torch.full((POSITIONS, self._parts), 2**63 - 1, device=matrix.device)

    def best(self, states: Tensor, last: Tensor) -> Tensor:
        """The best tokens, one after another. Padding is not chosen.

        Args:
            states: (k, dim), of at most :data:`POSITIONS`.
            last: (1,) long, the token before them.

        Returns:
            (k,) tokens.
        """
        of_states, bias, by_token, matrix = self._tables
        length, dim = states.shape
        tokens = torch.empty(length, dtype=torch.long, device=states.device)
        with torch.cuda.device_of(states):  # Triton launches on the current device.
            self._kernels.choose_block[(-(-matrix.size(0) // self._lines),)](
                last.contiguous(),
                states.to(of_states.dtype).contiguous(),
                of_states,
                bias,
                by_token,
                matrix,
                self._entering,
                self._keys,
                tokens,
                length,
                self._vocabulary,
                self._units,
                dim,
                _width(dim),
                max(_width(self._units), power(self._parts), 32 * _WARPS),
                POSITIONS,
                self._lines,
                self._parts,
                _PATIENCE,
                num_warps=_WARPS,
                **self._options,
            )
        return tokens


def _lines(matrix: Tensor) -> int:
    """Lines of a program."""
    return min(_LINES, _HELD // _width(matrix.size(1)))


def _width(size: int) -> int:
    """See ``inputs`` of :func:`.whole_block_kernels.choose_block`."""
    return max(_LEAST, power(size))


def _processors(device: torch.device) -> int:
    """How many programs run at once, whatever room they take."""
    if device.type != "cuda":
        return 1
    return int(torch.cuda.get_device_properties(device).multi_processor_count)
