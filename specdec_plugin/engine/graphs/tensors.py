"""The tensors of a batch, which stay where they are and serve one batch after another.

A CUDA graph reads and writes the tensors that it was captured with.
"""

import functools
import itertools
from collections import OrderedDict
from typing import Any, Callable, Dict, Hashable, NamedTuple

import torch
from torch import Tensor

from .capture import Graphs

#: Slots of target tokens are multiples of this, and source positions of half of it.
GRAIN = 64
#: Calls that may be captured at a time, of one set of tensors or of one function.
CALLS = 256
#: Bytes of tensors that are kept for batches to come.
_KEPT = 1 << 31


@functools.lru_cache(maxsize=4096)  # It is asked many times a sentence.
def rounded(size: int, grain: int = 1) -> int:
    """A size for ``size`` or some more: below a half more, or less than ``grain``."""
    step = max(grain, (1 << max(0, size.bit_length() - 1)) // 2)
    return -(-size // step) * step


def leading(tensor: Tensor, count: int, dim: int = 0) -> Tensor:
    """The first of a dimension: the tensor itself, where those are all."""
    return tensor if tensor.size(dim) == count else tensor.narrow(dim, 0, count)


def chosen(vectors: Tensor, which: Tensor) -> Tensor:
    """(rows, some, dim) of (rows, any, dim), and their indices (rows, some, 1) long."""
    return vectors.gather(1, which.expand(-1, -1, vectors.size(2)))


def counts_of(like: Tensor, rows: int) -> Tensor:
    """(4, rows or one more) zeros, each line of which begins at 16 bytes.

    What Triton compiles depends on where a tensor begins.
    """
    return like.new_zeros(4, rows + rows % 2)


class Sizes(NamedTuple):
    """How large the tensors of a batch are.

    Attributes:
        sentences: of the batch.
        beams: the most rows of a sentence.
        source: source positions.
        capacity: target tokens of a row.
    """

    sentences: int
    beams: int
    source: int
    capacity: int

    @classmethod
    def of(cls, sentences: int, beams: int, source: int, capacity: int) -> "Sizes":
        """Those of a batch, rounded up."""
        return cls(rounded(sentences), beams, rounded(source, GRAIN // 2), rounded(capacity, GRAIN))


class Shape(NamedTuple):
    """What a decoder's tensors are like.

    Attributes:
        layers: decoder layers.
        heads: attention heads.
        head_dim: size of a head.
        dtype: of keys, values and states.
        device: where they are.
    """

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device


class Calls:
    """What works with fixed sizes, by these sizes; what was called longest ago is dropped."""

    def __init__(self) -> None:
        self._made: OrderedDict[Hashable, Any] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What does some work, made when it is first asked for.

        Args:
            key: the sizes of the work.
            make: makes it.
        """
        found = self._made.get(key)
        if found is None:
            while len(self._made) >= CALLS:
                self._made.popitem(last=False)
            with torch.inference_mode(False):
                found = self._made[key] = make()
        self._made.move_to_end(key)
        return found


#: Numbers of sets of tensors.
_SERIALS = itertools.count()


class StaticTensors:
    """The tensors of a batch, and what is done with them.

    Args:
        sizes: how large they are.
        shape: what they are like.
        graphs: of the device.

    Attributes:
        store: (layers, 2, sentences * beams, capacity, heads, head_dim) keys, then values.
        source_kv: (2 * layers, sentences, heads, source, head_dim).
        source_mask: (sentences, 1, 1, source), 0 or -inf.
        lengths: (sentences * beams,) long, what each row has in the cache.
        nothing: (sentences * beams,) long: 0, not to be changed.
        counts: (4, sentences * beams or one more) long, for who decodes: a batch begins with 0, but
            with 1 in the second line.
        begun: whether they are what a batch begins with; who changes them has to note it.
        slots: (capacity,) long: 0, 1, …
        calls: what works on them.
        serial: a number that no others have, to name them where they shall not be kept.
    """

    def __init__(self, sizes: Sizes, shape: Shape, graphs: Graphs) -> None:
        self.sizes, self.graphs, self.serial = sizes, graphs, next(_SERIALS)
        layers, heads, head_dim, dtype, device = shape
        rows = sizes.sentences * sizes.beams
        with torch.inference_mode(False):
            self.store = torch.zeros(
                layers, 2, rows, sizes.capacity, heads, head_dim, dtype=dtype, device=device
            )
            self.source_kv = torch.zeros(
                2 * layers, sizes.sentences, heads, sizes.source, head_dim,
                dtype=dtype, device=device,
            )  # fmt: skip
            self.source_mask = torch.zeros(
                sizes.sentences, 1, 1, sizes.source, dtype=dtype, device=device
            )
            self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
            self.nothing = torch.zeros_like(self.lengths)
            self.slots = torch.arange(sizes.capacity, device=device)
            self.counts = counts_of(self.lengths, rows)
            self._first_counts = torch.zeros_like(self.counts)
            self._first_counts[1, :rows] = 1
        self.begun = False
        self.calls = Calls()

    @property
    def bytes(self) -> int:
        """What the greatest of them take."""
        return sum(each.numel() * each.element_size() for each in (self.store, self.source_kv))

    def set_lengths(self, lengths: Tensor, rows: int) -> None:
        """Set the lengths of ``rows`` rows: (rows or fewer,), and 0 of those that are not there.

        They write into their first slots.
        """
        count = lengths.size(0)
        self.lengths[:count].copy_(lengths)
        if count < rows:
            self.lengths[count:rows].zero_()

    def begin(self) -> None:
        """Set what a batch begins with, as operators that may be captured."""
        self.counts.copy_(self._first_counts)
        self.store.zero_()  # a NaN in the batch before would spoil this one's

    def mask(self, visible: Tensor) -> Tensor:
        """(rows, new, slots) what queries see, as 0 or -inf: (rows, 1, new, slots)."""
        return torch.where(visible, 0.0, float("-inf")).to(self.store.dtype).unsqueeze(1)


class Pool:
    """The tensors of batches that are over, for those to come."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._graphs = Graphs.of(shape.device)
        self._free: Dict[Sizes, StaticTensors] = {}

    def lend(self, sizes: Sizes) -> "Lease":
        """Tensors of such sizes, for a batch."""
        return Lease(self, self.take(sizes))

    def take(self, sizes: Sizes) -> StaticTensors:
        """Tensors that nobody else uses, with anything in them."""
        found = self._free.pop(sizes, None)
        return StaticTensors(sizes, self.shape, self._graphs) if found is None else found

    def give(self, tensors: StaticTensors) -> None:
        """Take tensors back. The oldest ones go where they are too many."""
        self._free[tensors.sizes] = tensors
        for sizes in list(self._free)[:-1]:
            if sum(each.bytes for each in list(self._free.values())) <= _KEPT:
                break
            self._free.pop(sizes, None)


class Lease:
    """Tensors of a pool, until the lease ends.

    Args:
        pool: whose they are.
        tensors: which it has lent.
    """

    def __init__(self, pool: Pool, tensors: StaticTensors) -> None:
        self._pool, self.tensors = pool, tensors

    def __del__(self) -> None:
        self._pool.give(self.tensors)

    def grow(self, capacity: int) -> StaticTensors:
        """Tensors with room for ``capacity`` tokens a row, and with the same contents."""
        old = self.tensors
        new = self._pool.take(old.sizes._replace(capacity=rounded(2 * capacity, GRAIN)))
        new.store.zero_()
        new.store.narrow(3, 0, old.sizes.capacity).copy_(old.store)
        new.source_kv.copy_(old.source_kv)
        new.source_mask.copy_(old.source_mask)
        self.tensors = new
        self._pool.give(old)
        return new
