"""What a device found, on the host while the device works on."""

import weakref
from collections import deque
from typing import Any, Deque, List, Optional, Sequence

import torch
from torch import Tensor

from .capture import current_stream


class Tables:
    """Small tensors that a device hands over to the host, read some replays later.

    Either they are copied, or a kernel writes them: the host's memory is pinned, so that a GPU
    reaches it. A kernel's n-th run since :meth:`clear` writes to ``ring[n % count]``.

    Args:
        like: a tensor of the shape, type and device of all that is handed over.
        count: tables that may be unread at a time.

    Attributes:
        ring: (count, …) on the CPU, where they are read.
    """

    def __init__(self, like: Tensor, count: int = 3) -> None:
        self._count, self._pushed = count, 0
        self._unread: Deque[int] = deque()
        on_gpu, self._device = like.device.type == "cuda", like.device
        with torch.inference_mode(False):
            self.ring = torch.zeros(
                count, *like.shape, dtype=like.dtype, device="cpu", pin_memory=on_gpu
            )
        self._events: List[Any] = [torch.cuda.Event() for _ in range(count if on_gpu else 0)]
        self._held = False

    def __len__(self) -> int:
        """How many tables are unread."""
        return len(self._unread)

    def clear(self) -> None:
        """Forget the tables that are unread, for which nobody waits, and begin with the first."""
        self._unread.clear()
        self._pushed = 0

    def push(self, table: Optional[Tensor] = None) -> None:
        """Note that the current stream hands a table over; nobody waits for it.

        Args:
            table: a tensor like that of the constructor, which is copied; None: a kernel that is
                queued writes it.

        Raises:
            RuntimeError: there are ``count`` unread tables.
        """
        if len(self._unread) >= self._count:
            raise RuntimeError(f"{self._count} tables were not read")
        slot = self._pushed % self._count
        if table is not None:
            self.ring[slot].copy_(table, non_blocking=True)
        elif not self._held:
            # PyTorch knows of no writer: others might get the memory as soon as nobody holds it.
            weakref.finalize(self, _wait, self.ring, self._events).atexit = False
            self._held = True
        if self._events:
            self._events[slot].record(current_stream(self._device))
        self._unread.append(slot)
        self._pushed += 1

    def pop(self) -> Tensor:
        """The oldest unread table, for which it waits.

        Returns:
            a tensor on the CPU; the ``count``-th push behind that of this table overwrites it.

        Raises:
            IndexError: all tables were read.
        """
        slot = self._unread.popleft()
        if self._events:
            self._events[slot].synchronize()
        return self.ring[slot]


def _wait(ring: Tensor, events: Sequence[Any]) -> None:
    """Wait for what was queued last, while the memory is held."""
    for event in events:
        event.synchronize()
