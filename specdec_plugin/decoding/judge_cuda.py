"""Taking what stands of drafts in one kernel of Triton, for CUDA devices."""

import functools
from typing import Any, Optional

import torch
from torch import Tensor

from ..engine.early_launch import launch_options
from ..engine.graphs.tables import Tables
from ..engine.triton_kernels import power, supports, tried
from .state import Draft
from .static_rows import TOKENS, StaticRows


@functools.cache
def judge_on(device: torch.device) -> "Optional[CudaJudge]":
    """The kernel on a device, tried once; None where it does not run."""
    if not supports(torch.empty(0, dtype=torch.float32, device=device)):
        return None

    def make() -> CudaJudge:
        found = CudaJudge()
        for width in (1, 2):
            found.attempt(width, device)
        return found

    return tried("Judging drafts", make)


class CudaJudge:
    """Does what :func:`.judge_best` and :meth:`.StaticRows.append` do.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self) -> None:
        from . import judge_kernels

        self._kernels: Any = judge_kernels

    def append(
        self, rows: StaticRows, best: Tensor, scored: Tensor, draft: Draft, eos: int
    ) -> None:
        """Add what stands to the rows that have not ended, and let the host know.

        Args:
            rows: whose tokens, lengths and outcomes are changed.
            best: (rows, m + 1) the verifier's choices.
            scored: (rows, m + 1) their log-probabilities.
            draft: m tokens a row.
            eos: the symbol that ends a sentence.
        """
        ring = rows.outcomes(best.size(1)).host.ring
        state = rows.inputs, rows.scores, rows.lengths, rows.alive, rows.held, rows.runs
        self._run(best, scored, draft, eos, ring, *state)

    def attempt(self, width: int, device: torch.device) -> None:
        """Run the kernel once, over one row of so many choices."""
        tokens = torch.zeros(1, width, dtype=torch.long, device=device)
        scores = torch.zeros(1, width, dtype=torch.float32, device=device)
        counts = torch.zeros(1, dtype=torch.long, device=device)
        state = torch.zeros_like(tokens), torch.zeros_like(scores)
        tables = Tables(counts.new_zeros(1, TOKENS + 2 * width), 2)
        draft, others = Draft(tokens[:, 1:], counts), (counts.clone() for _ in range(4))
        self._run(tokens, scores, draft, 2, tables.ring, *state, *others)
        tables.push()
        tables.pop()

    def _run(
        self, best: Tensor, scored: Tensor, draft: Draft, eos: int, ring: Tensor, *state: Tensor
    ) -> None:
        rows, width = best.shape
        with torch.cuda.device_of(best):  # Triton launches on the current device.
            self._kernels.append[(rows,)](
                best.contiguous(), scored.contiguous(), draft.tokens.contiguous(), draft.lengths,
                *state, ring, state[0].stride(0), width, eos, ring.size(0), power(width),
                **launch_options(best.device),
            )  # fmt: skip
