"""Who owns packed weights, and when they are packed again.

Packed weights belong to one object, a :class:`Packed`, which knows the version of the module's
weights that it packed. Others hold that object. They read its handles and tensors when they use
them, and never keep them across a batch.
"""

import contextlib
import functools
import operator
import threading
import weakref
from abc import ABC, abstractmethod
from itertools import chain
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple, TypeVar

import torch
from torch import nn
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from ..errors import PluginError
from ..fairseq_compat.held_in_half import HeldInHalf, in_half, memory_of
from ..fairseq_compat.mapping import views_file
from . import native
from .defaults import own_defaults

T = TypeVar("T")

#: The parameters of a table; how often one was changed in place.
_PARTS, _VERSION = dict.values, operator.attrgetter("_version")


class NotFiniteError(ValueError):
    """Weights that are packed are NaN or infinite."""


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether no number is NaN or infinite. A sum is, if one of its terms is."""
    tensor = memory_of(tensor).detach()
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return True
    if tensor.element_size() < 4:  # mostly an infinite sum
        return bool(torch.stack(tensor.aminmax()).isfinite().all())
    return bool(tensor.sum().isfinite() or tensor.isfinite().all())


class Weights:
    """The weights of a module, and how often they changed.

    Every change that PyTorch counts is seen by the addresses and version counters of the
    parameters: in-place operations, ``load_state_dict``, another parameter, device or type.
    fairseq's optimizers write through ``parameter.data``, which counts nothing, so each step of an
    optimizer counts as a change too. What others write through ``parameter.data`` is not seen.

    Use :meth:`of`: all that pack a module's weights share its version. Whoever packs keeps reading
    the parts that the module had: where another part replaces one, make a new generator.

    Attributes:
        version: rises where :meth:`update` finds that the weights may have changed.
    """

    _of: "weakref.WeakKeyDictionary[nn.Module, Weights]" = weakref.WeakKeyDictionary()
    #: Those of a module whose parts were replaced, too, for whoever still reads the former parts.
    _all: "weakref.WeakSet[Weights]" = weakref.WeakSet()
    _lock = threading.Lock()  # for whoever adds to them or walks them

    def __init__(self, module: nn.Module) -> None:
        # Walking the module tree costs more than all the rest, so it is walked once.
        self._tables = {
            name: part._parameters for name, part in module.named_modules() if part._parameters
        }
        self._parts = [*map(weakref.ref, _with_parameters(module))]
        self._kind = type(module).__name__
        self._checked = -1
        self._objects: List[int] = []
        self._parameters: List[nn.Parameter] = []
        self._addressed: List[nn.Parameter] = []  # those that are not held in half
        self._seen: List[Any] = []
        # While a storage is held, its address cannot be used again for other weights.
        self._storages: List[torch.UntypedStorage] = []
        self._trained = self._released = False
        self._shared: weakref.WeakValueDictionary[Any, Any] = weakref.WeakValueDictionary()
        self.version = 0

    @classmethod
    def of(cls, module: nn.Module) -> "Weights":
        """Those of ``module``, compared with the present ones; new ones if its parts are others."""
        _watch_optimizers()
        with cls._lock:
            weights = cls._of.get(module)
            parts = _with_parameters(module)
            if weights is None or [part() for part in weights._parts] != parts:
                weights = cls._of[module] = cls(module)
                cls._all.add(weights)
        weights.update()
        return weights

    @classmethod
    def note_step(cls, optimizer: Optimizer) -> None:
        """Let a step of an optimizer count as a change of the weights that it may have written."""
        groups = optimizer.param_groups
        written = {id(each) for group in groups for each in group["params"]}
        with cls._lock:
            known = [*cls._all]
        owners = [each for each in known if not written.isdisjoint(each._objects)]
        # In half precision, fairseq's optimizers have copies of the weights, whose owner nobody
        # knows. The weights keep their gradients until the next pass.
        for each in owners or known:
            each._trained |= bool(owners) or any(one.grad is not None for one in each._parameters)

    def update(self) -> None:
        """Raise the version if the weights are not those that were last seen."""
        if self._released:
            return
        # This is called for every batch, so that Python's loops would cost too much.
        objects = [*map(id, chain.from_iterable(map(_PARTS, self._tables.values())))]
        if objects != self._objects:
            tables, self._objects = self._tables.values(), objects
            each = (one for table in tables for one in table.values() if one is not None)
            self._parameters = [*each]  # While they are held, no others have their numbers.
            self._addressed = [one for one in self._parameters if not isinstance(one, HeldInHalf)]
        now: List[Any] = [*map(torch.Tensor.data_ptr, self._addressed)]
        try:
            now += [*map(_VERSION, self._parameters)]
        except RuntimeError:  # Those that were made in inference mode are not counted.
            now += [each.is_inference() or each._version for each in self._parameters]
        if self._trained or now != self._seen:
            self.version += 1
            self._seen, self._trained = now, False
            self._storages = [each.untyped_storage() for each in self._addressed]

    def share(self, form: Any, packed: Any) -> None:
        """Let others find what was packed of this version.

        Args:
            form: tells it from other things that are packed of the module.
            packed: it, for as long as somebody holds it.
        """
        self._shared[self.version, form] = packed

    def shared(self, form: Any) -> Any:
        """What :meth:`share` was told of this version; None if nobody holds it."""
        return self._shared.get((self.version, form))

    def release(self, part: nn.Module) -> None:
        """Free the parameters of a part of the module: packed ones are read instead.

        The module serves whoever packed them, and nobody else. Its version stands still.
        """
        self._released, self._storages = True, []
        for parameter in part.parameters():
            if in_half(parameter) is None:  # else it has no memory of its own
                memory_of(parameter).data = parameter.new_empty(0)

    def check(self, mapped: bool = False) -> None:
        """Refuse weights of which no output can be computed, once a version.

        Args:
            mapped: check those that view a file too, which takes all of it into memory.

        Raises:
            PluginError: one is NaN or infinite.
        """
        if self._checked == self.version and not mapped:
            return
        for part, table in self._tables.items():
            for name, each in table.items():
                if each is None or (views_file(each) and not mapped) or is_finite(each):
                    continue
                place = f"{part}.{name}" if part else name
                raise PluginError(
                    f"{place} of the model's {self._kind} has numbers that are NaN or "
                    "infinite, so that its output would mean nothing. Take an earlier checkpoint, "
                    "or average others."
                )
        self._checked = self.version


def _with_parameters(module: nn.Module) -> List[nn.Module]:
    """The parts of a module that have parameters of their own."""
    return [part for part in module.modules() if part._parameters]


@functools.cache
def _watch_optimizers() -> None:
    """Note the steps of all optimizers. With hooks of its own, no model could be pickled."""
    register_optimizer_step_post_hook(lambda optimizer, *others: Weights.note_step(optimizer))


class StaleWeightsError(Exception):
    """Weights have changed since they were packed, as a deferred check has found."""


class DeferredChecks:
    """A block in which :meth:`Packed.refresh` of this thread does not compare weights, but later.

    A GPU would wait for the host meanwhile. What is computed before the checks may be of stale
    weights. So whoever uses the block has to ask :meth:`stale` at the end, also if there was an
    error, and in that case to compute everything again.
    """

    def __init__(self) -> None:
        self._waiting: List[Tuple[Weights, int]] = []
        self._stale = False
        self._outer: Optional[DeferredChecks] = None

    def __enter__(self) -> "DeferredChecks":
        self._outer, _THREAD.deferred = _deferred(), self
        return self

    def __exit__(self, *error: Any) -> None:
        _THREAD.deferred = self._outer

    def add(self, weights: Weights) -> None:
        """Defer a check. Somebody else, such as another thread, may compare the weights earlier."""
        self._waiting.append((weights, weights.version))

    def stale(self) -> bool:
        """Check now; whether this check or an earlier one has found other weights."""
        waiting, self._waiting = self._waiting, []
        for each, version in waiting:
            each.update()
            self._stale |= each.version != version
        return self._stale


#: Of each thread, the block that defers its checks, or None.
_THREAD = threading.local()


def _deferred() -> Optional[DeferredChecks]:
    found: Optional[DeferredChecks] = getattr(_THREAD, "deferred", None)
    return found


def check_deferred() -> None:
    """Do the checks that this thread has deferred; a good time is when a GPU has work to do.

    Raises:
        StaleWeightsError: what was computed has to be computed again.
    """
    deferred = _deferred()
    if deferred is not None and deferred.stale():
        raise StaleWeightsError


class Packed(ABC):
    """Owns what was packed of a module's weights.

    Args:
        module: whose weights they are.

    Attributes:
        weights: the module's, with their version.
        version: that of the packed ones; -1 before any are.
    """

    def __init__(self, module: nn.Module) -> None:
        self.weights = Weights.of(module)
        self.version = -1

    def refresh(self) -> None:
        """Pack the weights again if they changed; see also :class:`DeferredChecks`."""
        deferred = _deferred()
        if deferred is None or self._resized():
            self.weights.update()
        else:
            deferred.add(self.weights)
        self.repack()

    def _resized(self) -> bool:
        """Whether a table has other sizes than the packed one, so that a GPU would read beyond it.

        It would then not compute anything any more.
        """
        return False

    def repack(self) -> None:
        """Pack the weights again if somebody saw that they changed."""
        if self.version != self.weights.version:
            self.weights.check()
            with packing():
                try:
                    self._pack()
                except NotFiniteError:
                    self.weights.check(mapped=True)
                    raise
            self.version = self.weights.version

    @abstractmethod
    def _pack(self) -> None:
        """Pack the weights as they are now, and drop what was packed before."""

    def _shared(self, form: Any, pack: Callable[[], T]) -> T:
        """What another one has packed of these weights and still holds; else what ``pack`` packs.

        Args:
            form: see :meth:`Weights.share`.
            pack: makes what nobody changes any more.
        """
        found: Optional[T] = self.weights.shared(form)
        if found is None:
            found = pack()
            self.weights.share(form, found)
        return found


class NativeObject:
    """An object of the native kernels, freed with this one, and the memory that it reads.

    Args:
        name: see :func:`native.own`.
        arguments: the same.
        reads: tensors and other owners whose memory the arguments point to.

    Attributes:
        handle: its address, for as long as this object is held.
    """

    def __init__(self, name: str, *arguments: Any, reads: Sequence[Any] = ()) -> None:
        self.handle = native.own(self, name, *arguments)
        self._reads = reads


@contextlib.contextmanager
def packing() -> Iterator[None]:
    """Where weights are packed: tensors made in inference mode could not be used outside of it."""
    with torch.inference_mode(False), torch.no_grad(), own_defaults():
        yield
