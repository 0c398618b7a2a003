"""Models whose parameters are views of what was loaded, so that weights have no other copy.

fairseq draws random weights for a new model, reads the checkpoint into memory, and copies it into
the model. That takes twice the memory of the weights, and a long time. In :func:`mapped_models`
nothing is drawn, and parameters become views of what was read. Large files are not read but mapped.
A page of such a file takes memory from when it is read until :func:`forget_pages`. After that, a
reader reads the file again. So a large file must not be written over while a model views it.
Parameters of a mapped file in half precision are :mod:`held in half <.held_in_half>`.
"""

import contextlib
import ctypes
import mmap
import os
import sys
import threading
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from .held_in_half import HeldInHalf, held_in_half, in_half, memory_of

#: Bytes from which on a file is mapped. fairseq-train writes over checkpoint_best.pt in place, and
#: people decode with it meanwhile.
MAPPED_FROM = 1 << 30


class Source(NamedTuple):
    """Where the values of a parameter are in a mapped file.

    Attributes:
        storage: in the file. It is held, so that no other memory has its address.
        path: of the file.
        version: of the file when it was mapped; see :func:`version_of`.
        offset: bytes from the file's first weight to the parameter.
    """

    storage: torch.UntypedStorage
    path: str
    version: Tuple[int, ...]
    offset: int

    def holds(self, parameter: Tensor) -> bool:
        """Whether the parameter still views it, and was not moved since."""
        return self.storage.data_ptr() == memory_of(parameter).untyped_storage().data_ptr()


def version_of(path: str) -> Tuple[int, ...]:
    """Differs between a file and another one that has taken its name."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


#: Loading replaces functions of PyTorch and variables of the environment, one thread at a time.
ONE_AT_A_TIME = threading.RLock()
#: By parameter, what it views of a mapped file.
_files = WeakTensorKeyDictionary()
#: Parts whose parameters may be held in 16 bits.
_HOLDING = (nn.Linear, nn.Embedding)
#: Draws of random weights. Some functions of nn.init show themselves to a mode, and not what they
#: call; others the reverse.
_DRAWS = (
    Tensor.uniform_,
    Tensor.normal_,
    nn.init.uniform_,
    nn.init.normal_,
    nn.init.kaiming_uniform_,
)


class _Mapping(TorchFunctionMode):
    """Leaves new parameters undrawn, and lets them view what they would be copied from.

    Attributes:
        loaded: by address, the storages of the tensors of checkpoints, and where they are in a
            file, if they are mapped.
        held: by parameter, what takes its place when a state was loaded.
        holds: whether a state is being loaded, behind which somebody calls :meth:`settle`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loaded: Dict[int, Tuple[torch.UntypedStorage, Optional[Source]]] = {}
        self.held = WeakTensorKeyDictionary()
        self.holds = False

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Tuple[Any, ...] = (),
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> Any:
        target = args[0] if args else (kwargs or {}).get("tensor")
        if isinstance(target, nn.Parameter) and function in _DRAWS:
            return target
        if isinstance(target, nn.Parameter) and function is Tensor.copy_:
            self.held.pop(target, None)  # what was loaded before
            if self._view(target, args[1]):
                return target
        result = function(*args, **(kwargs or {}))
        if isinstance(target, nn.Parameter) and function is Tensor.copy_:
            self._forget_copied(args[1])
        return result

    def _forget_copied(self, value: Any) -> None:
        """Take what was copied from a mapped file out of memory."""
        if isinstance(value, Tensor):
            _, source = self.loaded.get(value.untyped_storage().data_ptr(), (None, None))
            if source is not None:
                _forget_memory(value)

    def _view(self, parameter: nn.Parameter, value: Any) -> bool:
        """Let a parameter view a value; False where it must be copied."""
        if not isinstance(value, Tensor) or value.shape != parameter.shape:
            return False
        storage, source = self.loaded.get(value.untyped_storage().data_ptr(), (None, None))
        here = value.device == parameter.device and not isinstance(parameter, HeldInHalf)
        if storage is None or not here or not value.is_contiguous():
            return False
        viewed = parameter
        if value.dtype == parameter.dtype:
            parameter.data = value
        elif source is not None and self.holds and _may_be_held(value, parameter):
            viewed = held_in_half(value, parameter.requires_grad, _forget_memory)
            self.held[parameter] = viewed
        else:
            return False
        if source is not None:
            inside = int(value.storage_offset()) * value.element_size()
            _files[viewed] = source._replace(offset=source.offset + inside)
        return True

    def settle(self, model: nn.Module) -> None:
        """Give a model that was loaded the parameters that are held in 16 bits.

        Parts of other types, such as an LSTM, keep their own, which may have other readers.
        """
        found = [
            (part, name, parameter)
            for part in model.modules()
            for name, parameter in part._parameters.items()
            if parameter is not None and parameter in self.held
        ]
        for part, _, parameter in found:
            if type(part) not in _HOLDING and parameter in self.held:
                parameter.data = self.held.pop(parameter).numbers.keep_single()
        for part, name, parameter in found:
            if parameter in self.held:
                setattr(part, name, self.held[parameter])
        for *_, parameter in found:
            self.held.pop(parameter, None)

    def load(self, load: Callable[..., Any], file: Any, *args: Any, **kwargs: Any) -> Any:
        """``torch.load``, mapped where the file is large and its format allows it."""
        path = getattr(file, "name", file)
        mapped = isinstance(path, str) and os.path.getsize(path) >= MAPPED_FROM
        mapped = mapped and _is_zipped(path)
        version = version_of(path) if mapped else ()
        state = (
            load(path, *args, **{**kwargs, "mmap": True}) if mapped else load(file, *args, **kwargs)
        )
        weights = state.get("model") if isinstance(state, dict) else None
        tensors = weights.values() if isinstance(weights, dict) else []
        storages = [each.untyped_storage() for each in tensors if isinstance(each, Tensor)]
        first = min((each.data_ptr() for each in storages), default=0)
        for storage in storages:
            source = Source(storage, path, version, storage.data_ptr() - first) if mapped else None
            self.loaded[storage.data_ptr()] = storage, source
        return state


def _may_be_held(value: Tensor, parameter: nn.Parameter) -> bool:
    """Whether the kernels may read numbers of a file as they are, and others widen them."""
    half = value.dtype in (torch.float16, torch.bfloat16)
    return half and parameter.dtype == torch.float32 and value.device.type == "cpu"


def _is_zipped(path: str) -> bool:
    """Whether a file has the format that can be mapped."""
    with open(path, "rb") as file:
        return bool(torch.serialization._is_zipfile(file))


@contextlib.contextmanager
def mapped_models() -> Iterator[None]:
    """Where fairseq loads models that are decoded with.

    The checkpoint must hold all parameters, as fairseq demands by default (``strict``). fairseq
    draws other random numbers afterwards than it would without this.
    """
    with ONE_AT_A_TIME:
        mapping, load, loading = _Mapping(), torch.load, threading.get_ident()
        owner: Any = nn.Module
        load_state = owner.load_state_dict

        def load_mapped(*args: Any, **kwargs: Any) -> Any:
            # Other threads read files of their own meanwhile.
            ours = threading.get_ident() == loading
            return mapping.load(load, *args, **kwargs) if ours else load(*args, **kwargs)

        def load_held(model: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if threading.get_ident() != loading:
                return load_state(model, *args, **kwargs)
            outer, mapping.holds = mapping.holds, not torch.cuda.is_available()
            try:
                return load_state(model, *args, **kwargs)
            finally:
                mapping.holds = outer
                mapping.settle(model)

        torch.load, owner.load_state_dict = load_mapped, load_held
        try:
            with mapping:
                yield
        finally:
            torch.load, owner.load_state_dict = load, load_state


def sources_of(module: nn.Module) -> List[Source]:
    """Where the parameters of a module are in mapped files, as far as they are."""
    return [_files[each] for each in module.parameters() if each in _files]


def views_file(parameter: Tensor) -> bool:
    """Whether a parameter views a mapped file."""
    held = isinstance(parameter, HeldInHalf)
    return parameter in _files and (not held or in_half(parameter) is not None)


def source_of(weight: Tensor) -> Optional[Source]:
    """Where a parameter, or a view of all of it, is in a mapped file.

    None for other tensors, and for one that was written to.
    """
    weight = memory_of(weight)
    for parameter, source in _files.items():
        memory = memory_of(parameter)
        same = memory.data_ptr() == weight.data_ptr() and memory.nbytes == weight.nbytes
        if same and source.holds(parameter):
            begin, end = weight.data_ptr(), weight.data_ptr() + weight.nbytes
            unchanged = not _written(begin // mmap.PAGESIZE, -(-end // mmap.PAGESIZE))
            return source if unchanged and weight.is_contiguous() else None
    return None


def forget_pages(*modules: nn.Module) -> None:
    """Give back the memory of parameters that view a file, once they have been packed.

    What was written to stays in memory.
    """
    for module in modules:
        for parameter in module.parameters():
            source = _files.get(parameter)
            if source is not None and source.holds(parameter):
                _forget_memory(memory_of(parameter))


def _forget_memory(tensor: Tensor) -> None:
    _forget(tensor.data_ptr(), tensor.nbytes)


def _forget(address: int, size: int) -> None:
    """Take the whole pages of a mapped file out of memory, unless any was written to."""
    page = mmap.PAGESIZE
    begin, end = -(-address // page) * page, (address + size) // page * page
    if sys.platform == "linux" and begin < end and not _written(begin // page, end // page):
        ctypes.CDLL(None).madvise(
            ctypes.c_void_p(begin), ctypes.c_size_t(end - begin), mmap.MADV_DONTNEED
        )


def _written(begin: int, end: int) -> bool:
    """Whether pages with these numbers may have copies that the file does not have.

    In /proc/self/pagemap a page has 64 bits. Bit 63 is set if it is in memory, bit 62 if it is
    swapped out, bit 61 if it is the file's own.
    """
    try:
        with open("/proc/self/pagemap", "rb") as pages:
            pages.seek(8 * begin)
            bits = np.frombuffer(pages.read(8 * (end - begin)), np.uint64)
    except OSError:
        return True
    own = (bits >> np.uint64(61)) & np.uint64(7)
    return len(bits) < end - begin or bool(((own >= 2) & (own % 2 == 0)).any())


def serves_plugin(task: Any) -> bool:
    """Whether a task's models are decoded by the plugin alone, not by fairseq's own search."""
    options: List[Any] = [getattr(task, name, None) for name in ("cfg", "args")]
    return any(getattr(each, "decoding", None) is not None for each in options)
