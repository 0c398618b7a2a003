"""Kernels of our own for CPUs: a whole Transformer stack in one native call.

At the sizes of translation models, the arithmetic of one decoding step takes a
fraction of the time of the operators that PyTorch starts for it. These kernels
run the layers in one parallel region, with weights packed once for products with
few rows. A wheel has them compiled for several levels of instructions. Elsewhere they
are compiled on first use; without a compiler everything runs on PyTorch's operators.
"""

import ctypes
import functools
import hashlib
import logging
import os
import weakref
from pathlib import Path
from typing import Any, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ...fairseq_compat.held_in_half import in_half, widened
from . import levels, prebuilt
from .build import compiled, find_compiler
from .interface import bind, made
from .kernels import ACTIVATIONS, INT4, KEPT, WEIGHT_TYPES, EncodeCall, SourceKvCall, StackCall

__all__ = [
    "ACTIVATIONS",
    "INT4",
    "WEIGHT_TYPES",
    "EncodeCall",
    "SourceKvCall",
    "StackCall",
    "float_weight",
    "identity",
    "library",
    "made",
    "matrix",
    "own",
    "pointer",
    "why_missing",
]

logger = logging.getLogger(__name__)

#: By the bits of ``linear_instructions``.
INSTRUCTIONS = ("AVX2", "AVX-512", "AVX-512 VNNI", "AVX-512 BF16", "NEON")


class _Loaded(NamedTuple):
    """A library in this process.

    Attributes:
        functions: of the library.
        digest: of its file.
        origin: of the file, in words.
    """

    functions: ctypes.CDLL
    digest: str
    origin: str


def library() -> Any:
    """The compiled kernels; None where they are turned off or unavailable."""
    loaded = _loaded()
    return None if loaded is None else loaded.functions


def why_missing() -> str:
    """Why :func:`library` is None, in a few words."""
    if _turned_off():
        return "SPECDEC_NATIVE=0 turns the native kernels off"
    if find_compiler() is None:
        return "the native kernels are not compiled (a C++ compiler is needed)"
    return "the native kernels could not be compiled or loaded (the log has the reason)"


def _turned_off() -> bool:
    return os.environ.get("SPECDEC_NATIVE", "1") == "0"


def identity() -> Optional[str]:
    """Differs between libraries that :func:`library` may be; None where there is none."""
    loaded = _loaded()
    return None if loaded is None else loaded.digest


@functools.cache
def _loaded() -> Optional[_Loaded]:
    if _turned_off():
        return None
    loaded = _load()
    if loaded is None:
        logger.warning(
            "There are no native kernels here, so decoding runs on PyTorch's operators, which is "
            "several times as slow on a CPU. Install a C++ compiler (c++, g++ or clang++), or name "
            "one in CXX, or install the plugin from a wheel that has kernels for this machine."
        )
        return None
    bind(loaded.functions)
    logger.info(f"native kernels: {instructions(loaded.functions)} ({loaded.origin})")
    return loaded


def _load() -> Optional[_Loaded]:
    found = prebuilt.find()
    if found is not None:
        try:
            return _open(found.path, f"{found.level.name}, from the wheel")
        except OSError as error:  # such as a system that is older than the wheel is for
            logger.info(f"the wheel's kernels cannot be loaded: {error}")
    level = levels.wanted() or levels.NATIVE
    with compiled() as path:
        if path is None:
            return None
        try:
            return _open(path, f"{level}, compiled here")
        except OSError as error:  # such as a folder that is mounted without the right to execute
            logger.warning(
                f"The native kernels were compiled, but cannot be loaded from {path.parent}, "
                f"because {error}. Name another folder in SPECDEC_CACHE."
            )
            return None


def _open(path: Path, origin: str) -> _Loaded:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return _Loaded(ctypes.CDLL(str(path)), digest, origin)


def instructions(loaded: Any) -> str:
    """The processor's instructions that compiled kernels use."""
    found = loaded.linear_instructions()
    used = [name for bit, name in enumerate(INSTRUCTIONS) if found >> bit & 1]
    return ", ".join(used) or "the compiler's least"


def own(owner: Any, name: str, *arguments: Any) -> int:
    """Make an object of the kernels that lives as long as its owner; see :class:`.Header`.

    It outlives the interpreter, at whose end threads may still decode with it.

    Args:
        owner: the object of Python that holds the handle.
        name: of the functions that make it and free it.
        arguments: for the function that makes it.

    Returns:
        its handle.
    """
    loaded = library()
    handle = made(getattr(loaded, f"{name}_new")(*arguments))
    weakref.finalize(owner, getattr(loaded, f"{name}_free"), handle).atexit = False
    return handle


def pointer(tensor: Optional[Tensor]) -> Optional[int]:
    """Where a contiguous tensor begins; None for None."""
    return None if tensor is None else tensor.data_ptr()


def matrix(weights: Sequence[Tensor]) -> Tuple[Tensor, int]:
    """Weights one below the other as the kernels read them: float32, or 16 bits that are held.

    Returns:
        (outputs, inputs) contiguous on the CPU; and the number of its format's C++ name.
    """
    loaded, parts = library(), [half for half in map(in_half, weights) if half is not None]
    formats = {KEPT[each.dtype] for each in parts}
    form = formats.pop() if len(parts) == len(weights) and len(formats) == 1 else None
    if form is None or loaded is None or not loaded.linear_reads(form):
        parts, form = [*map(float_weight, weights)], WEIGHT_TYPES[torch.float32]
    return (parts[0] if len(parts) == 1 else torch.cat(parts)).contiguous(), form


def float_weight(tensor: Tensor) -> Tensor:
    """A weight as the kernels read it: contiguous float32 on the CPU."""
    return widened(tensor).detach().to(torch.float32).contiguous()
