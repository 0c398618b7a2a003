"""Noticing that a model's weights changed after they were copied or fused."""

import contextlib
from typing import Any, Iterator, List, Optional, Tuple

import torch
from torch import nn


@contextlib.contextmanager
def packing() -> Iterator[None]:
    """Where weights are packed: tensors made in inference mode could not be used outside of it."""
    with torch.inference_mode(False), torch.no_grad():
        yield


class WeightWatch:
    """Answers one question: may the weights of ``module`` differ from when they were last read?

    Every change that PyTorch counts is seen by the version counters and data
    pointers of the parameters: in-place operations, ``load_state_dict``, another
    device or dtype.  fairseq's optimizers write through ``parameter.data``, which
    counts nothing; but a forward pass in training mode goes before each of their
    steps, so such a pass counts as a change too.
    """

    def __init__(self, module: nn.Module) -> None:
        # Walking the module tree costs more than all the rest, so it is walked once.
        self._parameters = [part._parameters for part in module.modules() if part._parameters]
        self._seen: Optional[List[Tuple[int, int]]] = None
        self._trained = False
        module.register_forward_pre_hook(self._note_training)

    def _note_training(self, module: nn.Module, inputs: Any) -> None:
        if module.training:
            self._trained = True

    def changed(self) -> bool:
        """Whether to read the weights again; what is there now counts as read.

        ``True`` on the first call.
        """
        now = [
            (parameter.data_ptr(), parameter._version)
            for table in self._parameters
            for parameter in table.values()
            if parameter is not None
        ]
        changed = self._trained or now != self._seen
        self._seen, self._trained = now, False
        return changed
