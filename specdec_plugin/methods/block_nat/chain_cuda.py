"""Choosing the tokens of drafted blocks by kernels of Triton, for CUDA devices and few rows."""

import math
from typing import Any, Optional

import torch
from torch import Tensor

from ...engine import CachedDecoder
from ...engine.early_launch import launch_options
from ...engine.output_projection import OutputProjection
from ...engine.triton_kernels import power, supports, tried
from ...engine.weights import is_finite
from ...models.chain_head import ChainHead
from .whole_block import POSITIONS, WholeBlock, whole_block_fits

#: With more rows, PyTorch's products read each weight once for all of them.
ROWS = 4
#: The type of the tables: drafts need not be exact.
_TABLES = torch.float16
#: Columns that a warp reads at a time: 16 bytes of each thread.
_CHUNK = 256
#: The most numbers of a program, and the most lines: 130 programs for 8,000 symbols.
_NUMBERS, _LINES = 1 << 15, 64
#: Warps of a program. With more of them, the next position's program has no room beside it.
_WARPS = 8


def kernels_of(
    head: ChainHead, engine: CachedDecoder, by_token: Optional[Tensor]
) -> "Optional[CudaChain]":
    """The choice of tokens in kernels, tried once; None where they do not run.

    Args:
        head: the trained layer.
        engine: runs the decoder; its projection has to be one of all symbols.
        by_token: (vocabulary, units) what each token brings into the layer, or None where that
            is too large.
    """
    plain = type(engine.projection) is OutputProjection
    if by_token is None or not plain or getattr(engine.decoder, "first_head", None) is not None:
        return None
    if not supports(engine.embedding.table):
        return None
    table = by_token

    def make() -> Optional[CudaChain]:
        found = CudaChain(head, engine, table)
        if not found.is_finite:
            return None
        for rows in (1, 2):
            states = table.new_zeros(rows, 2, head.out.out_features)
            found.best(states, torch.zeros(rows, dtype=torch.long, device=table.device))
        return found

    return tried("A drafter's chain head", make)


class CudaChain:
    """Runs a chain head and the projection behind it.

    Of a single row, one kernel chooses all tokens where it fits: see :class:`.WholeBlock`. Else
    there is a kernel for each position.

    With h, u and y of :class:`.ChainHead`, E the projection's weight and e its bias, scores are

        E (h_i + D u_i + d) + e = (E h_i + E d + e) + (E D) u_i,

    where d is the bias of D. The brackets are one product for all positions of a block. So is
    what enters u but for C u and the token. What is left is a product of u_i with the lines of
    E D and of C, whose results are scores of this position and what enters the next one.

    What it does depends on shapes alone, and never waits for the device: it can be captured.

    Args:
        head: the trained layer.
        engine: runs the decoder.
        by_token: (vocabulary, units) what each token brings into the layer.

    Attributes:
        is_finite: whether the tables are: float16 ends at 65,504.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self, head: ChainHead, engine: CachedDecoder, by_token: Tensor) -> None:
        from . import chain_kernels

        self._kernels: Any = chain_kernels
        self._options = launch_options(engine.device)
        dtype = engine.dtype
        with torch.no_grad():
            weight, bias = engine.projection.float_weights()
            base = weight @ head.out.bias.float()
            if bias is not None:
                base += bias
            base[engine.decoder.padding_idx] = -math.inf
            of_states = torch.cat([weight, head.from_state.weight.float()])
            matrix = torch.cat([weight @ head.out.weight.float(), head.from_chain.weight.float()])
            self._of_states = of_states.to(dtype)
            self._bias = torch.cat([base, head.from_state.bias.float()]).to(dtype)
            self._matrix = matrix.to(_TABLES).contiguous()
            self._by_token = by_token.to(_TABLES).contiguous()
        self.is_finite = is_finite(self._matrix.float()) and is_finite(self._by_token.float())
        self._vocabulary, self._units = by_token.shape
        self._chunk = min(_CHUNK, max(16, power(self._units)))
        self._block = max(1, min(_LINES, _NUMBERS // power(self._units)))
        tables = self._of_states, self._bias, self._by_token, self._matrix
        fits = whole_block_fits(self._of_states, self._matrix)
        self._whole = WholeBlock(*tables, self._options) if fits else None

    def best(self, states: Tensor, last: Tensor) -> Tensor:
        """See :meth:`.Chain.best`.

        Args:
            states: (rows, k, dim).
            last: (rows,) long.

        Returns:
            (rows, k) tokens.
        """
        rows, length, _ = states.shape
        if rows == 1 and self._whole is not None and length <= POSITIONS:
            return self._whole.best(states.squeeze(0), last).unsqueeze(0)
        offsets = torch.nn.functional.linear(
            states.to(self._of_states.dtype), self._of_states, self._bias
        )
        offsets, last = offsets.contiguous(), last.contiguous()
        parts = -(-self._vocabulary // self._block)
        programs = -(-(self._vocabulary + self._units) // self._block)
        entering = offsets.new_empty(length, rows, self._units, dtype=torch.float32)
        keys = torch.empty(length, rows, parts, dtype=torch.long, device=offsets.device)
        tokens = torch.empty(rows, length, dtype=torch.long, device=offsets.device)
        with torch.cuda.device_of(offsets):  # Triton launches on the current device.
            for position in range(length):
                self._kernels.next_keys[rows, programs](
                    last,
                    offsets,
                    self._by_token,
                    self._matrix,
                    entering,
                    keys,
                    position,
                    length,
                    self._vocabulary,
                    self._units,
                    self._chunk,
                    self._block,
                    parts,
                    power(parts),
                    position == 0,
                    num_warps=_WARPS,
                    **self._options,
                )
            self._kernels.tokens_of[rows, length](
                keys, tokens, length, parts, power(parts), num_warps=1, **self._options
            )
        return tokens
