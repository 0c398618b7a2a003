"""A function of a few tensors that have a row for each sentence, captured by its sizes."""

from typing import Callable, Hashable, Optional, Sequence, Tuple

import torch
from torch import Tensor

from .capture import Graphs, Replayed
from .tensors import Calls, rounded

#: Gives tensors of as many rows as it gets.
Function = Callable[..., Sequence[Tensor]]


class RowsFunction:
    """Calls functions that neither wait for the device nor look at any number.

    Args:
        device: where the tensors are.
    """

    def __init__(self, device: torch.device) -> None:
        self._graphs = Graphs.of(device)
        self._calls = Calls()

    def __call__(self, key: Hashable, function: Function, *inputs: Tensor) -> Tuple[Tensor, ...]:
        """What a function gives, which the next call of this key overwrites.

        Args:
            key: tells the function from others, with all that it reads besides its inputs.
            function: the same for the same key.
            inputs: (rows, …) each.

        Returns:
            (rows, …) each.
        """
        count = inputs[0].size(0)
        sizes = key, rounded(count), *(each.shape[1:] for each in inputs)
        sized: _Sized = self._calls.get(sizes, lambda: _Sized(rounded(count), inputs, self._graphs))
        return sized(function, inputs)


class _Sized:
    """A function of inputs of some sizes."""

    def __init__(self, rows: int, inputs: Sequence[Tensor], graphs: Graphs) -> None:
        self._inputs = [each.new_zeros(rows, *each.shape[1:]) for each in inputs]
        self._outputs: Optional[Sequence[Tensor]] = None
        self._replayed = Replayed(graphs)

    def __call__(self, function: Function, inputs: Sequence[Tensor]) -> Tuple[Tensor, ...]:
        count = inputs[0].size(0)
        for own, each in zip(self._inputs, inputs):
            own[:count].copy_(each)
        self._replayed(lambda: self._work(function))
        assert self._outputs is not None
        return tuple(each[:count] for each in self._outputs)

    def _work(self, function: Function) -> None:
        found = function(*self._inputs)
        if self._outputs is None:
            with torch.inference_mode(False):
                self._outputs = [torch.empty_like(each) for each in found]
        for own, each in zip(self._outputs, found):
            own.copy_(each)
