"""What a device found, copied to the host while the device works on."""

from collections import deque
from typing import Any, Deque, Optional, Tuple

import torch
from torch import Tensor

from .capture import current_stream

#: A copy on its way: the tensor that it goes to, and what tells that it is there.
_Copy = Tuple[Tensor, Optional[Any]]


class Tables:
    """Copies of a small tensor on the host, read some replays later.

    A copy from a GPU goes to pinned memory, behind the work that was enqueued before. Elsewhere it
    is made at once.

    Args:
        like: a tensor of the shape, type and device of all that is copied.
        count: copies that may be unread at a time.
    """

    def __init__(self, like: Tensor, count: int = 3) -> None:
        self._count, self._pushed = count, 0
        self._unread: Deque[_Copy] = deque()
        self._ring: Tuple[_Copy, ...] = ()
        if like.device.type == "cuda":
            with torch.inference_mode(False):
                self._ring = tuple(
                    (torch.empty_like(like, device="cpu", pin_memory=True), torch.cuda.Event())
                    for _ in range(count)
                )

    def __len__(self) -> int:
        """How many copies are unread."""
        return len(self._unread)

    def clear(self) -> None:
        """Forget the copies that are unread; nobody waits for them."""
        self._unread.clear()

    def push(self, table: Tensor) -> None:
        """Enqueue a copy on the current stream, which nobody waits for.

        Args:
            table: a tensor like that of the constructor.

        Raises:
            RuntimeError: there are ``count`` unread copies.
        """
        if len(self._unread) >= self._count:
            raise RuntimeError(f"{self._count} tables were not read")
        if not self._ring:
            self._unread.append((table.clone(), None))
            return
        buffer, event = self._ring[self._pushed % self._count]
        assert event is not None
        buffer.copy_(table, non_blocking=True)
        event.record(current_stream(table.device))
        self._unread.append((buffer, event))
        self._pushed += 1

    def pop(self) -> Tensor:
        """The oldest unread copy, for which it waits.

        Returns:
            a tensor on the CPU; the ``count``-th push behind that of this copy overwrites it.

        Raises:
            IndexError: all copies were read.
        """
        buffer, event = self._unread.popleft()
        if event is not None:
            event.synchronize()
        return buffer
