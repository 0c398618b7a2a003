"""The best symbols of few states, in two kernels, for CUDA devices."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ..barred import Barred
from ..early_launch import launch_options
from ..triton_kernels import power, supports, tried
from .flow import most_vectors

#: Numbers of the weights that a program reads at a time for a single vector, and for more of them.
_ALONE, _NUMBERS = 1024, 2048
#: The longest vectors that one warp multiplies.
_LONGEST = 1024
#: The most parts of a vocabulary, and warps that combine what is known of them.
_PARTS, _WARPS = 2048, 8
#: The most vectors of a program, and the most bytes that programs read; see
#: :func:`.most_vectors`.
_TOGETHER, _READ = 4, 1 << 26


def fused_projection(weight: Tensor, bias: Optional[Tensor]) -> "Optional[FusedProjection]":
    """The projection in kernels, tried once; None where they do not run.

    Args:
        weight: (vocabulary, dim), on the device to run on.
        bias: (vocabulary,) or None.
    """
    if not supports(weight):
        return None

    def make() -> FusedProjection:
        found = FusedProjection(weight, bias)
        for vectors in (1, 2, found.most):
            states = weight.new_zeros(vectors, weight.size(1))
            steps = torch.zeros(vectors, dtype=torch.long, device=weight.device)
            for barred in (None, Barred(0, steps, 1)):
                found.best(states, 1.0, -1, barred)
        return found

    return tried("The output projection", make)


class FusedProjection:
    """Finds the best symbols without writing any score.

    What it does depends on shapes alone, and never waits for the device: it can be captured.

    Args:
        weight: (vocabulary, dim).
        bias: (vocabulary,) or None.

    Attributes:
        most: states at a time.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor]) -> None:
        from . import score_kernels

        self._kernels: Any = score_kernels
        self._weight, self._bias = weight.contiguous(), bias
        self._options = launch_options(weight.device)
        self.most = most_vectors(weight, _TOGETHER, _READ)

    def best(
        self,
        states: Tensor,
        temperature: float,
        suppressed_id: int,
        barred: Optional[Barred] = None,
    ) -> Tuple[Tensor, Tensor]:
        """The most probable symbols, and their log-probabilities: (vectors,) each.

        Args:
            states: (vectors, dim), at most :attr:`most`.
            temperature: divides the scores.
            suppressed_id: a symbol that is ruled out after normalisers are computed, or -1.
            barred: another one, at some steps of (vectors,).
        """
        states = states.contiguous()
        (vectors, inner), vocabulary = states.shape, self._weight.size(0)
        block, together = power(inner), min(_TOGETHER, power(vectors))
        lines = max(1, (_ALONE if vectors == 1 else _NUMBERS) // block)
        groups = -(-vocabulary // (lines * _PARTS))
        parts = -(-vocabulary // (lines * groups))
        # Each has a tensor of its own: what Triton compiles depends on where a tensor begins.
        tops, totals, bests = (
            torch.empty(vectors, parts, dtype=torch.float32, device=states.device) for _ in range(3)
        )
        choices = torch.empty_like(tops, dtype=torch.int32)
        with torch.cuda.device_of(states):  # Triton launches on the current device.
            self._kernels.score_lines[parts, -(-vectors // together)](
                states,
                self._weight,
                self._bias,
                None if barred is None else barred.steps.contiguous(),
                tops,
                totals,
                bests,
                choices,
                vectors,
                vocabulary,
                parts,
                1.0 / temperature,
                suppressed_id,
                -1 if barred is None else barred.symbol,
                0 if barred is None else barred.least,
                inner,
                self._bias is not None,
                barred is not None,
                lines,
                groups,
                together,
                block,
                num_warps=max(1, block // _LONGEST),
                **self._options,
            )
        return combined(tops, totals, bests, choices, vocabulary)[:2]


def combined(
    tops: Tensor, totals: Tensor, bests: Tensor, choices: Tensor, vocabulary: int
) -> Tuple[Tensor, Tensor, Tensor]:
    """What is known of all symbols, from what is known of parts of them.

    Args:
        tops, totals, bests, choices: (rows, parts) of :func:`.score_kernels.combine_parts`.
        vocabulary: how many symbols there are.

    Returns:
        the best symbol of each row, its log-probability, and the normaliser: (rows,) each.

    Raises:
        ImportError: Triton is not installed.
    """
    from .score_kernels import combine_parts

    (rows, parts), device = tops.shape, tops.device
    chosen = torch.empty(rows, dtype=torch.long, device=device)
    log_probabilities, normalisers = (
        torch.empty(rows, dtype=torch.float32, device=device) for _ in range(2)
    )
    with torch.cuda.device_of(tops):  # Triton launches on the current device.
        combine_parts[(rows,)](
            tops,
            totals,
            bests,
            choices,
            chosen,
            log_probabilities,
            normalisers,
            parts,
            vocabulary - 1,
            power(parts),
            num_warps=_WARPS,
            **launch_options(device),
        )
    return chosen, log_probabilities, normalisers
