"""What the decoder looks at of a source: keys and values of all layers, in one CUDA graph."""

from typing import Callable, Optional

import torch
from torch import Tensor

from .capture import Replayed
from .tensors import StaticTensors

#: Source symbols of a batch, padding among them, up to which a graph pays: see :mod:`.encoder`.
_MOST = 2048
#: (rows, src, dim) of an encoder to (2 * layers, rows, heads, src, head_dim).
Project = Callable[[Tensor], Tensor]


class StaticSource:
    """Begins batches: one after another, on the same tensors.

    It holds neither the decoder nor the tensors, which hold it.

    Args:
        tensors: of the batches.
        like: (rows, src, dim) what an encoder gives.
    """

    def __init__(self, tensors: StaticTensors, like: Tensor) -> None:
        sizes = tensors.sizes
        self._encoded = like.new_zeros(sizes.sentences, sizes.source, like.size(2))
        self._padded = torch.ones(
            sizes.sentences, sizes.source, dtype=torch.bool, device=like.device
        )
        self._replayed = Replayed(tensors.graphs)

    def begin(
        self, tensors: StaticTensors, project: Project, encoded: Tensor, padding: Optional[Tensor]
    ) -> None:
        """Forget the batch before, and take the source of another one.

        Args:
            tensors: as above; all but lengths are written.
            project: the same in each call.
            encoded: (rows, src, dim).
            padding: (rows, src), true where padded; None: nowhere.
        """
        rows, source, _ = encoded.shape
        tensors.graphs.follow()
        self._encoded[:rows, :source].copy_(encoded)
        self._padded.fill_(True)
        mine = self._padded[:rows, :source]
        mine.zero_() if padding is None else mine.copy_(padding)
        if rows < self._padded.size(0):  # Rows that are too many look at a zero.
            self._encoded[rows:, 0].zero_()
            self._padded[rows:, 0].zero_()
        if self._padded.numel() > _MOST:
            self._work(tensors, project)
        else:
            self._replayed(lambda: self._work(tensors, project))

    def _work(self, tensors: StaticTensors, project: Project) -> None:
        tensors.store.zero_()  # a NaN in the batch before would spoil this one's
        real = self._encoded.masked_fill(self._padded.unsqueeze(2), 0)
        tensors.source_kv.copy_(project(real))
        mask = torch.where(self._padded, float("-inf"), 0.0).to(tensors.source_mask.dtype)
        tensors.source_mask.copy_(mask[:, None, None, :])
