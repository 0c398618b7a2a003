"""Engines compute in types and on devices of their own, whatever PyTorch does by default."""

import contextlib
from typing import Iterator

import torch

_DEVICES = "cpu", "cuda"


@contextlib.contextmanager
def own_defaults() -> Iterator[None]:
    """Where ``torch.autocast`` and a default device that a program has set have no effect.

    Operators that write into tensors of other types than their inputs' would fail. The kernels
    read tensors that are made without a device, and addresses of a GPU would end the process.
    """
    with contextlib.ExitStack() as stack:
        for device in _DEVICES:
            if torch.is_autocast_enabled(device):
                stack.enter_context(torch.autocast(device, enabled=False))
        if not torch.empty(0).is_cpu:  # else operators are not slowed down by another mode
            stack.enter_context(torch.device("cpu"))
        yield
