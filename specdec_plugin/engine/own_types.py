"""Engines compute in the types of their weights, whatever a program has PyTorch cast to."""

import contextlib
from typing import Any, ContextManager

import torch

_DEVICES = "cpu", "cuda"


def own_types() -> ContextManager[Any]:
    """A block in which ``torch.autocast`` around it has no effect.

    Operators that write into tensors of other types than their inputs' would fail.
    """
    devices = [device for device in _DEVICES if torch.is_autocast_enabled(device)]
    if not devices:
        return contextlib.nullcontext()
    stack = contextlib.ExitStack()
    for device in devices:
        stack.enter_context(torch.autocast(device, enabled=False))
    return stack
