"""Memory of each method, though all of them share one process and one verifier.

The resident size of a process that holds several methods belongs to none of them, so the parts are
measured separately:

- *verifier*: parameters and buffers of the models in ``--path``, which all methods share;
- *drafter*: parameters and buffers that only this method reaches;
- *packed*: what else the method keeps after its first batch, above all weights packed
  for its kernels. It is the growth of the C heap (on CUDA: of allocated device memory) while the
  method was built and decoded one batch, less *drafter*. The kernels take memory in shared pieces
  of 8 MiB, so on a CPU this is right to 8 MiB;
- *decoding*: the greatest growth above the others while a batch is decoded. On a CPU it is that of
  the resident size, after freed memory was returned to the system; on CUDA that of
  ``torch.cuda.max_memory_allocated``. It is measured before the timed runs, on the batches with the
  longest sources. On CUDA, tensors that are kept for later batches are *packed*, and what graphs
  keep for what they compute on the way is not counted.

Their sum, *peak*, is what the method would need alone, without PyTorch itself.
"""

import contextlib
import ctypes
import gc
import os
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
)

import torch
from torch import Tensor, nn

from ...fairseq_compat.held_in_half import memory_of

Built = TypeVar("Built")

#: Modules, and objects of these packages, are looked into for tensors.
OWNERS = ("specdec_plugin", "fairseq", "torch.nn")


class Memory(NamedTuple):
    """Bytes; see the head of this module."""

    verifier: int
    drafter: int
    packed: int
    decoding: int

    def megabytes(self) -> Dict[str, float]:
        """In MB (10⁶ bytes), with their sum as ``peak``."""
        parts = {name: value / 1e6 for name, value in self._asdict().items()}
        return {**parts, "peak": sum(parts.values())}


def weight_bytes(root: Any, besides: Iterable[Any] = ()) -> int:
    """Bytes of the parameters and buffers that are reachable from an object.

    Args:
        root: a model, a generator, or a list of such.
        besides: objects whose storages do not count.
    """
    shared = {_storage(tensor) for each in besides for tensor in tensors_of(each)}
    sizes = {
        _storage(tensor): memory_of(tensor).untyped_storage().nbytes()
        for module in _reachable(root)
        if isinstance(module, nn.Module)
        for tensor in (*module._parameters.values(), *module._buffers.values())
        if tensor is not None
    }
    return sum(size for storage, size in sizes.items() if storage not in shared)


def tensors_of(root: Any) -> Iterator[Tensor]:
    """All tensors that are reachable from an object, through modules and :data:`OWNERS`."""
    return (each for each in _reachable(root) if isinstance(each, Tensor))


def _reachable(root: Any) -> Iterator[Any]:
    seen: Set[int] = set()
    todo = [root]
    while todo:
        thing = todo.pop()
        if id(thing) in seen:
            continue
        seen.add(id(thing))
        yield thing
        todo += _parts(thing)


def _parts(thing: Any) -> Sequence[Any]:
    if isinstance(thing, dict):
        return list(thing.values())
    if isinstance(thing, (list, tuple, set)):
        return list(thing)
    if isinstance(thing, (type, Tensor)):
        return []
    owner = getattr(thing, "__self__", None)  # of a bound method
    if owner is not None and not isinstance(owner, type):
        return [owner]
    if isinstance(thing, nn.Module) or type(thing).__module__.startswith(OWNERS):
        return list(getattr(thing, "__dict__", {}).values())
    return []


def _storage(tensor: Tensor) -> Any:
    """What distinguishes storages; oneDNN's tensors hide theirs and are never views."""
    if tensor.is_mkldnn:
        return id(tensor)
    return tensor.device, memory_of(tensor).untyped_storage().data_ptr()


class _HeapInfo(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    ]


def in_use(device: torch.device) -> Optional[int]:
    """Bytes that are allocated now: on CUDA by PyTorch, else in the C heap; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.memory_allocated(device)
    try:
        mallinfo = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return None  # no glibc, or one before 2.33
    mallinfo.restype = _HeapInfo
    info = mallinfo()
    return int(info.uordblks + info.hblkhd)


def growth(build: Callable[[], Built], device: torch.device) -> Tuple[Built, Optional[int]]:
    """What ``build`` returns, and the bytes that stay allocated; None if the system hides them."""
    gc.collect()
    before = in_use(device)
    built = build()
    gc.collect()
    after = in_use(device)
    return built, None if before is None or after is None else max(0, after - before)


def peak_growth(action: Callable[[], Any], device: torch.device) -> int:
    """The most bytes that an action needed at any time, above what there was before.

    Where the peak of the resident size cannot be reset, its growth at the end.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        action()
        return torch.cuda.max_memory_allocated(device) - before
    _give_back()
    resets = _reset_peak()
    before = _resident()
    action()
    return max(0, (_highest() if resets else _resident()) - before)


def _give_back() -> None:
    """Return freed memory to the system, so that the next use of it is seen."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> bool:
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _resident() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _highest() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        lines = [line for line in file if line.startswith("VmHWM:")]
    return 1024 * int(lines[0].split()[1]) if lines else 0
