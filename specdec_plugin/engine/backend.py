"""Who computes: PyTorch's operators, or native kernels where they can."""

from abc import ABC, abstractmethod
from typing import Optional, Sequence, Union

import torch
from torch import Tensor

from . import native
from .linear import Linear, NativeLinear


class Backend(ABC):
    """Answers what runs each part of a model. It has no state.

    Attributes:
        static: whether PyTorch's operators work on tensors that stay where they are.
    """

    static: bool = False

    @abstractmethod
    def unsupported(
        self, tensor: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None
    ) -> Optional[str]:
        """Why native kernels do not run here, in a few words; None where they do.

        Args:
            tensor: what they would read, such as a weight; None asks for no tensor in particular.
            dtype: the type that the weight would be packed in; None for what is not packed.
        """

    def linear(
        self,
        weights: Sequence[Tensor],
        biases: Optional[Sequence[Tensor]],
        dtype: torch.dtype,
        exact: Union[Linear, NativeLinear, None] = None,
    ) -> Union[Linear, NativeLinear]:
        """A product with packed weights.

        Args:
            weights: (outputs, inputs) each; their outputs are put side by side.
            biases: (outputs,) each, or None for all.
            dtype: the type to pack weights in. PyTorch has no products of integer types:
                its weights keep their own type then.
            exact: the same product in float32, if there is one, which may be read instead.
        """
        if self.unsupported(weights[0], dtype) is None:
            exact = exact if isinstance(exact, NativeLinear) else None
            return NativeLinear(weights, biases, dtype, exact)
        return Linear.of(weights, biases, dtype)


class TorchBackend(Backend):
    """PyTorch's operators, for any model on any device.

    Args:
        reason: why not the kernels, in a few words.
    """

    def __init__(self, reason: str = "PyTorch's operators were chosen") -> None:
        self._reason = reason

    def unsupported(
        self, tensor: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None
    ) -> Optional[str]:
        """See :class:`Backend`."""
        return self._reason


class GraphBackend(TorchBackend):
    """PyTorch's operators on tensors that stay where they are, which CUDA captures in graphs.

    A step of a decoder is a hundred small operators: a GPU is done with each before the host has
    called the next. A graph is called once. Elsewhere than on a GPU nothing is captured.
    """

    static = True


class NativeBackend(Backend):
    """Native kernels for what they can run, and PyTorch's operators for the rest."""

    def unsupported(
        self, tensor: Optional[Tensor] = None, dtype: Optional[torch.dtype] = None
    ) -> Optional[str]:
        """See :class:`Backend`."""
        if tensor is not None and tensor.device.type != "cpu":
            return f"the model is on {tensor.device.type} and not on a CPU"
        wanted = torch.float64 if tensor is not None and tensor.dtype == torch.float64 else dtype
        if wanted is not None and wanted not in native.WEIGHT_TYPES:
            return f"the native kernels have no {str(wanted).removeprefix('torch.')}"
        return None


def choose_backend(device: torch.device) -> Backend:
    """The fastest backend of a device."""
    if device.type != "cpu":
        reason = f"the model is on {device.type} and not on a CPU"
        return GraphBackend(reason) if device.type == "cuda" else TorchBackend(reason)
    if native.library() is None:
        return TorchBackend(native.why_missing())
    return NativeBackend()
