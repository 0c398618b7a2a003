"""States of a decoder, recorded while it decodes."""

import ctypes

import torch
from torch import Tensor

from ..engine.native.interface import Header, field, structure


@structure
class StateSampleCall(ctypes.Structure):
    """Where the kernels record states."""

    states = field("float*", "(room, dim) result")
    room = field("int", "the most states")
    count = field("int", "result: those that are recorded")


Header(__file__, "state_sample.h")


class StateSample:
    """The first states that a verifier projects.

    Args:
        room: how many.
        dim: numbers of each.

    Attributes:
        call: where the kernels record them, for as long as this object lives.
    """

    def __init__(self, room: int, dim: int) -> None:
        self._states = torch.empty(room, dim, dtype=torch.float32)
        self.call = StateSampleCall(states=self._states.data_ptr(), room=room)

    @property
    def full(self) -> bool:
        """Whether there are as many as wanted."""
        return bool(self.call.count == self.call.room)

    @property
    def states(self) -> Tensor:
        """(states, dim), those that are recorded."""
        return self._states[: self.call.count]
