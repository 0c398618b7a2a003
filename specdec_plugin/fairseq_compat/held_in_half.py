"""float32 parameters whose numbers stay in 16 bits, such as those of a mapped checkpoint.

fairseq decodes a checkpoint of half precision in float32 on a CPU, so that it copies all weights.
The kernels read 16 bits as they are, and need no copy.
"""

import contextlib
import threading
from typing import Any, Callable, Dict, Iterator, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

_aten = torch.ops.aten
#: Operators whose result is the same tensor.
_SAME = (_aten.detach.default, _aten.alias.default)
#: What takes the address of a tensor's numbers.
_BY_ADDRESS = (
    Tensor.data_ptr,
    Tensor.numpy,
    Tensor.share_memory_,
    Tensor.storage,
    Tensor.tolist,
    Tensor.untyped_storage,
    Tensor.__array__,
    Tensor.__dlpack__,
)
#: While a parameter takes float32: another thread must not take it, too.
_LOCK = threading.Lock()


@contextlib.contextmanager
def _plainly() -> Iterator[None]:
    """Where what outlives a call is made: a tensor of inference mode is of no use outside of it."""
    with torch.inference_mode(False), torch.no_grad():
        yield


class _Numbers:
    """Those of a parameter.

    Attributes:
        memory: has them, in 16 bits until somebody needs them in float32.
    """

    def __init__(self, half: Tensor, forget: Callable[[Tensor], None]) -> None:
        self.memory, self._forget = half, forget

    @property
    def half(self) -> Optional[Tensor]:
        """They in 16 bits; None if they have these no more."""
        memory = self.memory
        return None if memory.dtype == torch.float32 else memory

    def keep_single(self) -> Tensor:
        """They in float32, from now on."""
        with _LOCK, _plainly():
            half = self.half
            if half is not None:
                self.memory = half.float()
                self._forget(half)
            return self.memory


def _dispatch(
    cls: Any,
    function: Callable[..., Any],
    types: Any,
    args: Tuple[Any, ...] = (),
    kwargs: Optional[Dict[str, Any]] = None,
) -> Any:
    """Let an operator read the numbers of a tensor, in 16 bits if it may, or change them."""
    first, named = args[0] if args else None, kwargs or {}
    if isinstance(first, cls):
        if function in _SAME:
            return cls(first.numbers)
        half = first.numbers.half
        if half is not None and function is _aten.embedding.default:
            return function(half, *args[1:], **named).float()
        if half is not None and function is _aten._to_copy.default:
            return function(half, **{"dtype": torch.float32, **named})
    _count_writes(cls, function, args)
    args, named = tree_map_only(cls, lambda each: each.numbers.keep_single(), (args, named))
    result = function(*args, **named)
    changed = isinstance(first, cls) and result is args[0]
    return first if changed else result


def _count_writes(kind: Any, function: Any, args: Tuple[Any, ...]) -> None:
    """Count what an operator writes into lists of tensors. PyTorch counts others by itself."""
    for value, argument in zip(args, function._schema.arguments):
        written = argument.alias_info is not None and argument.alias_info.is_write
        if written and isinstance(value, (list, tuple)):
            for each in value:
                if isinstance(each, kind):
                    torch.autograd.graph.increment_version(each)


class HeldInHalf(Tensor):
    """A float32 tensor that takes the memory of 16 bits until an operator reads or writes it.

    Then it has a copy in float32, as if it always had. Two readers need none: an embedding, which
    reads a few rows, and a copy to another type or device. Others call :func:`widened` or
    :func:`in_half`.
    """

    numbers: _Numbers
    __torch_dispatch__: Any = classmethod(_dispatch)

    @staticmethod
    def __new__(cls, numbers: _Numbers) -> "HeldInHalf":
        """See :func:`held_in_half`."""
        like = numbers.memory
        made: HeldInHalf = Tensor._make_wrapper_subclass(
            cls, like.shape, strides=like.stride(), dtype=torch.float32, device=like.device
        )
        made.numbers = numbers
        return made

    @classmethod
    def __torch_function__(
        cls,
        function: Callable[..., Any],
        types: Any,
        args: Tuple[Any, ...] = (),
        kwargs: Optional[Dict[str, Any]] = None,
    ) -> Any:
        """Let functions that are no operators see a tensor that has an address."""
        if function == torch._has_compatible_shallow_copy_type:
            return args[0] is args[1]  # So a module that is moved gets other parameters.
        if getattr(function, "__self__", None) is Tensor.data and function.__name__ == "__set__":
            if args[0] is args[1]:
                return None
            raise RuntimeError("Weights that are held in 16 bits take no other data: use copy_.")
        if function in _BY_ADDRESS:
            args = tree_map_only(cls, lambda each: each.numbers.keep_single(), args)
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **(kwargs or {}))

    def __deepcopy__(self, memo: Dict[int, Any]) -> Tensor:
        """A copy in float32."""
        memo[id(self)] = copied = self._plain()
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Let a file have float32."""
        return self._plain().__reduce_ex__(protocol)

    def _plain(self) -> Tensor:
        half, memory = in_half(self), memory_of(self).detach()
        plain = memory.clone() if half is None else half.float()
        return nn.Parameter(plain, self.requires_grad) if isinstance(self, nn.Parameter) else plain


def held_in_half(
    half: Tensor,
    requires_grad: bool = False,
    forget: Callable[[Tensor], None] = lambda half: None,
) -> nn.Parameter:
    """A parameter in float32 whose numbers are held in 16 bits.

    Args:
        half: has the numbers. Nobody may change it.
        requires_grad: of the parameter.
        forget: is told of ``half`` when the parameter has taken float32.
    """
    return nn.Parameter(HeldInHalf(_Numbers(half, forget)), requires_grad)


def hold_none(model: nn.Module) -> None:
    """Give a model plain parameters: fairseq's own modules take slower ways with others."""
    plain: Dict[int, nn.Parameter] = {}
    for part in model.modules():
        table: Dict[str, Any] = dict(part._parameters)
        for name, each in table.items():
            if not isinstance(each, HeldInHalf):
                continue
            if id(each) not in plain:
                with _plainly():
                    numbers = each.numbers.keep_single()
                    plain[id(each)] = nn.Parameter(numbers, each.requires_grad)
            setattr(part, name, plain[id(each)])


def in_half(tensor: Tensor) -> Optional[Tensor]:
    """The numbers of a tensor that is held in 16 bits; None for all others."""
    return tensor.numbers.half if isinstance(tensor, HeldInHalf) else None


def memory_of(tensor: Tensor) -> Tensor:
    """The tensor that has the memory of another one; mostly that one."""
    return tensor.numbers.memory if isinstance(tensor, HeldInHalf) else tensor


def widened(tensor: Tensor) -> Tensor:
    """The same tensor in memory of its own type, for one who reads it once."""
    half = in_half(tensor)
    return memory_of(tensor).detach() if half is None else half.float()
