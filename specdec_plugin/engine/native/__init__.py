"""Kernels of our own for CPUs: a whole Transformer stack in one native call.

At the sizes of translation models, the arithmetic of one decoding step takes a
fraction of the time of the operators that PyTorch starts for it. These kernels
run the layers in one parallel region, with weights packed once for products with
few rows. A wheel has them compiled for several levels of instructions. Elsewhere they
are compiled on first use; without a compiler everything runs on PyTorch's operators.
"""

import ctypes
import functools
import logging
import os
import weakref
from typing import Any, Optional, Tuple

import torch
from torch import Tensor

from . import levels, prebuilt
from .build import compiled
from .interface import bind
from .kernels import ACTIVATIONS, WEIGHT_TYPES, EncodeCall, SourceKvCall, StackCall

__all__ = [
    "ACTIVATIONS",
    "WEIGHT_TYPES",
    "EncodeCall",
    "SourceKvCall",
    "StackCall",
    "float_weight",
    "library",
    "own",
    "pointer",
]

logger = logging.getLogger(__name__)

#: By the bits of ``linear_instructions``.
INSTRUCTIONS = ("AVX2", "AVX-512", "AVX-512 VNNI", "AVX-512 BF16", "NEON")


@functools.cache
def library() -> Any:
    """The compiled kernels; None where they are turned off or unavailable."""
    if os.environ.get("SPECDEC_NATIVE", "1") == "0":
        return None
    loaded, origin = _load()
    if loaded is None:
        logger.warning(
            "There are no native kernels here, so decoding runs on PyTorch's operators, which is "
            "several times as slow on a CPU. Install a C++ compiler (c++, g++ or clang++), or name "
            "one in CXX, or install the plugin from a wheel that has kernels for this machine."
        )
        return None
    bind(loaded)
    logger.info(f"native kernels: {instructions(loaded)} ({origin})")
    return loaded


def _load() -> Tuple[Any, str]:
    """The library, and where it is from; None where it is unavailable."""
    found = prebuilt.find()
    if found is not None:
        try:
            return ctypes.CDLL(str(found.path)), f"{found.level.name}, from the wheel"
        except OSError as error:  # such as a system that is older than the wheel is for
            logger.info(f"the wheel's kernels cannot be loaded: {error}")
    level = levels.wanted() or levels.NATIVE
    with compiled() as path:
        if path is None:
            return None, ""
        try:
            return ctypes.CDLL(str(path)), f"{level}, compiled here"
        except OSError as error:  # such as a folder that is mounted without the right to execute
            logger.warning(
                f"The native kernels were compiled, but cannot be loaded from {path.parent}, "
                f"because {error}. Name another folder in SPECDEC_CACHE."
            )
            return None, ""


def instructions(loaded: Any) -> str:
    """The processor's instructions that compiled kernels use."""
    found = loaded.linear_instructions()
    used = [name for bit, name in enumerate(INSTRUCTIONS) if found >> bit & 1]
    return ", ".join(used) or "the compiler's least"


def own(owner: Any, name: str, *arguments: Any) -> int:
    """Make an object of the kernels that lives as long as its owner; see :class:`.Header`.

    Args:
        owner: the object of Python that holds the handle.
        name: of the functions that make it and free it.
        arguments: for the function that makes it.

    Returns:
        its handle.
    """
    loaded = library()
    handle: int = getattr(loaded, f"{name}_new")(*arguments)
    weakref.finalize(owner, getattr(loaded, f"{name}_free"), handle)
    return handle


def pointer(tensor: Optional[Tensor]) -> Optional[int]:
    """Where a contiguous tensor begins; None for None."""
    return None if tensor is None else tensor.data_ptr()


def float_weight(tensor: Tensor) -> Tensor:
    """A weight as the kernels read it: contiguous float32 on the CPU."""
    return tensor.detach().to(torch.float32).contiguous()
