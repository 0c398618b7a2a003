"""Memory that is kept from one batch to the next."""

from typing import Optional, Sequence

import torch
from torch import Tensor

#: Floats that are kept. More than 256 MiB go back to the system after each batch.
MOST = 1 << 26


class Room:
    """Memory for one result after another, each of which is no longer read when the next is made.

    The system hands out fresh memory page by page and clears each page, which takes up to half as
    long as to compute what is written there.
    """

    def __init__(self) -> None:
        self._memory: Optional[Tensor] = None

    def take(self, *shape: int) -> Tensor:
        """A float32 tensor of this shape on the CPU, of any numbers; what was taken before ends."""
        size = torch.Size(shape).numel()
        if size > MOST:
            self._memory = None
            return _empty(shape)
        if self._memory is None or self._memory.numel() < size:
            self._memory = None  # is freed before more is asked for
            self._memory = _empty((min(MOST, size + size // 4),))
        return self._memory[:size].view(shape)


def _empty(shape: Sequence[int]) -> Tensor:
    """Not of PyTorch's default type and device, which a program may change."""
    return torch.empty(shape, dtype=torch.float32, device="cpu")
