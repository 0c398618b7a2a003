"""What a decoder is fed with in each iteration, in one kernel, for CUDA devices."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from ..early_launch import launch_options
from ..triton_kernels import power, supports, tried


def fused_embedding(embedding: Tensor, scale: float) -> "Optional[FusedEmbedding]":
    """The kernels, tried once; None where they do not run.

    Args:
        embedding: (vocabulary, dim), on the device to run on.
        scale: of its vectors.
    """
    if not supports(embedding):
        return None

    def make() -> FusedEmbedding:
        found = FusedEmbedding(embedding, scale)
        inputs, lengths = (
            torch.zeros(*shape, dtype=torch.long, device=embedding.device)
            for shape in ((2, 4), (2,))
        )
        found.of_draft(inputs, inputs[:, :1], lengths, embedding)
        found.of_block(inputs, lengths, lengths.clone(), embedding[:2], 2, embedding)
        return found

    return tried("An embedding", make)


class FusedEmbedding:
    """Vectors of tokens and of their positions.

    Args:
        embedding: (vocabulary, dim).
        scale: of its vectors.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self, embedding: Tensor, scale: float) -> None:
        from . import embedding_kernels

        self._kernels: Any = embedding_kernels
        self._embedding, self._scale = embedding.contiguous(), scale
        self._options = launch_options(embedding.device)

    def of_draft(
        self, inputs: Tensor, draft: Tensor, lengths: Tensor, table: Optional[Tensor]
    ) -> Tensor:
        """The newest token of each row, and a draft behind it.

        Args:
            inputs: (rows, …) all tokens of each row.
            draft: (rows, m).
            lengths: (rows,) the index of the newest token.
            table: (positions, dim), or None. Behind its end, its last vector is repeated.

        Returns:
            (rows, m + 1, dim).
        """
        rows, width = draft.size(0), draft.size(1) + 1
        outputs = self._new(rows, width)
        with torch.cuda.device_of(outputs):  # Triton launches on the current device.
            self._kernels.embed_draft[rows, width](
                inputs, draft.contiguous(), lengths, *self._tables(table, outputs),
                inputs.stride(0), width, *self._sizes(table), **self._options,
            )  # fmt: skip
        return outputs

    def of_block(
        self,
        inputs: Tensor,
        held: Tensor,
        lengths: Tensor,
        masks: Tensor,
        new: int,
        table: Optional[Tensor],
    ) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """New tokens of each row, which see those before, and masks behind, which see all.

        Args:
            inputs: (rows, …) all tokens of each row.
            held: (rows,) the index of the first token that is fed.
            lengths: (rows,) the index of the newest token.
            masks: (k, dim), scaled.
            new: tokens of a row, at most.
            table: as for :meth:`of_draft`.

        Returns:
            (rows, new + k, dim); (rows, new + k) long, how many slots each vector sees;
            (rows, k, 1) long, the index of each mask in its row; and (rows,) the newest tokens.
        """
        rows, count = lengths.size(0), masks.size(0)
        width = new + count
        outputs, limits = self._new(rows, width), lengths.new_empty(rows, width)
        where, last = lengths.new_empty(rows, count, 1), lengths.new_empty(rows)
        positions, *others = self._sizes(table)
        with torch.cuda.device_of(outputs):  # Triton launches on the current device.
            self._kernels.embed_block[rows, width](
                inputs, held, lengths, masks.contiguous(), limits, where, last,
                *self._tables(table, outputs),
                inputs.stride(0), width, positions, count, *others, **self._options,
            )  # fmt: skip
        return outputs, limits, where, last

    def _new(self, rows: int, width: int) -> Tensor:
        return self._embedding.new_empty(rows, width, self._embedding.size(1))

    def _tables(self, table: Optional[Tensor], outputs: Tensor) -> Tuple[Any, ...]:
        return self._embedding, table, outputs

    def _sizes(self, table: Optional[Tensor]) -> Tuple[Any, ...]:
        """Positions, scale, and what the kernels are compiled for."""
        dim, positions = self._embedding.size(1), 0 if table is None else table.size(0)
        return positions, self._scale, dim, table is not None, power(dim)
