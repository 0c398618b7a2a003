"""What all that runs kernels of Triton shares. Triton itself is imported with the kernels."""

import logging
from typing import Callable, Optional, TypeVar

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

Runner = TypeVar("Runner")

#: Types of weights that the kernels read.
TYPES = (torch.float32, torch.float16, torch.bfloat16)


def supports(weight: Tensor) -> bool:
    """Whether kernels may run where a weight is: their errors show in a trial."""
    return weight.device.type == "cuda" and weight.dtype in TYPES


def tried(name: str, make: Callable[[], Runner]) -> Optional[Runner]:
    """What runs kernels; None where they do not run, with a warning where they should.

    Args:
        name: what they compute, as a warning begins.
        make: imports the kernels, and runs each of them once.
    """
    try:
        return make()
    except ImportError:  # PyTorch for CPUs and for some systems comes without Triton.
        return None
    except Exception as error:  # Triton needs a C compiler, a folder to write to, and a driver.
        logger.warning(
            f"{name} runs on PyTorch's operators, and more slowly, because Triton's kernels "
            f"do not run here: {error}"
        )
        return None


def power(number: int) -> int:
    """The least power of 2 that is not less."""
    return 1 << (number - 1).bit_length()
