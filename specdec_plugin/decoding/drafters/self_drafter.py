"""Drafts of the verifier itself, with its weights rounded: nothing has to be trained."""

import sys
from typing import Optional

import torch
from torch import Tensor

from ...engine import CachedDecoder
from ...errors import PluginError
from ..one_call import OneCallMonologue
from ..state import Batch, Draft, Rows
from ..verifier import Verifier
from .base import Drafter

#: k where none is given: the copy errs so seldom that long drafts pay.
BLOCK_SIZE = 16


class SelfDrafter(Drafter):
    """Greedy decoding by a copy of the verifier's decoder, token by token.

    With 8-bit weights a step of the copy reads a quarter of the memory that a step of
    the verifier reads, which is what a step costs at batch 1; and its choices are nearly
    always the verifier's. It reads the verifier's cache and projected source, so that
    nothing of the source or of the accepted tokens is computed twice.

    Args:
        verifier: whose first model is copied.
        block_size: k, the most tokens of a draft.
        dtype: the type of the copy's weights.
        most_rows: drafts only while at most so many rows are left; None: always.

    Raises:
        PluginError: the kernels cannot run the verifier's decoder here.
    """

    def __init__(
        self,
        verifier: Verifier,
        block_size: int = BLOCK_SIZE,
        dtype: torch.dtype = torch.int8,
        most_rows: Optional[int] = None,
    ) -> None:
        engine = verifier.engines[0]
        self._copy: Optional[CachedDecoder] = None
        if isinstance(engine, CachedDecoder):
            self._copy = CachedDecoder(engine.decoder, dtype)
        if self._copy is None or not self._copy.takes_tokens:
            raise PluginError(
                "Without --drafter-path, --decoding specdec drafts with an 8-bit copy of the model "
                "itself, which only the native kernels can run (on a CPU, with a C++ compiler, "
                "for a plain Transformer). Add --drafter-path DRAFTER.pt, or use --decoding greedy."
            )
        self._verifier = verifier
        self._at_once = OneCallMonologue(self._copy, block_size)
        self._most_rows = sys.maxsize if most_rows is None else most_rows

    def start(self, batch: Batch) -> None:
        """Round the weights again if the model's changed."""
        assert self._copy is not None
        self._copy.refresh()

    def propose(self, rows: Rows) -> Draft:
        """What the copy says next, up to k tokens a row."""
        if rows.size > self._most_rows:
            return Draft(rows.inputs[:, :0], torch.zeros_like(rows.lengths))
        return self._at_once.propose(rows, self._verifier.states[0])

    def select(self, rows: Tensor) -> None:
        """Nothing of its own to choose from."""
