"""A batch's inputs on the host, which a GPU gets when somebody reads them there.

A copy takes longer than a step of decoding does. An encoder's graph takes the source from the host
itself, and most of our generators read nothing else.
"""

from typing import Any, Dict, Iterator, Mapping, Optional

import torch
from fairseq import utils
from torch import Tensor


class LateInput(Mapping[str, Any]):
    """fairseq's ``net_input`` on a device, moved there in few copies when it is first read.

    Args:
        host: on the CPU; not changed.
        device: where it is read.

    Attributes:
        host: the same, without what only a decoder in training reads.
        device: the same.
    """

    def __init__(self, host: Mapping[str, Any], device: torch.device) -> None:
        self.host = {name: each for name, each in host.items() if name != "prev_output_tokens"}
        self.device = device
        self._there: Optional[Dict[str, Any]] = None

    def __getitem__(self, name: str) -> Any:
        if self._there is None:
            self._there = _moved(self.host, self.device)
        return self._there[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.host)

    def __len__(self) -> int:
        return len(self.host)


def on_host(net_input: Mapping[str, Any]) -> Mapping[str, Any]:
    """The inputs where they are without a copy: what asks for their shapes reads these."""
    # isinstance() takes several times as long, because the class derives from an abstract one.
    return net_input.host if type(net_input) is LateInput else net_input


def _moved(inputs: Mapping[str, Any], device: torch.device) -> Dict[str, Any]:
    """Inputs on a device, in as few copies as there are types."""
    moved = {**inputs}
    numbers = {name: each for name, each in inputs.items() if is_long(each)}
    if len(numbers) > 1:
        joined = torch.cat([each.flatten() for each in numbers.values()])
        joined = joined.to(device, non_blocking=True)
        parts = joined.split([each.numel() for each in numbers.values()])
        for (name, each), part in zip(numbers.items(), parts):
            moved[name] = part.view(each.shape)
    return dict(utils.move_to_cuda(moved, device))


def is_long(value: Any) -> bool:
    """Whether it is a tensor of numbers, such as tokens and lengths."""
    return isinstance(value, Tensor) and value.dtype == torch.long
