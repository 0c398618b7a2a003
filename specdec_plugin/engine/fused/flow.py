"""Vectors on their way through the layers of a Transformer, few at a time, for CUDA devices."""

from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor

from ..decoder_layer import FeedForward, Norm
from ..graphs.tensors import chosen
from ..linear import Linear
from ..native import ACTIVATIONS
from ..triton_kernels import power, supports

#: The most vectors at a time.
VECTORS = 32
#: The most bytes of a matrix that programs read all together. Each program reads its weights anew
#: for its vectors, from the second level's cache. PyTorch's products read them once for all.
_READ = 1 << 24
#: The same for the symbols of a source, and the most of these. They are multiplied once a sentence,
#: and PyTorch's kernels for products and attention take 6 to 17 us each where it is short.
_READ_ONCE, _SYMBOLS = 1 << 26, 128
#: The widest layers, and the widest inner layers, that the kernels are for.
DIM, _INNER = 1024, 4096
#: Outputs and vectors of a program, where there is a single vector, where there are more, and where
#: there are more than :data:`VECTORS`, or many short ones.
_ALONE, TOGETHER, TOGETHER_OF_MANY = (2, 1), (4, 2), (4, 4)
#: How many short vectors are many, and up to which length they are short.
_MANY, _SHORT = 16, 256
#: The most numbers of weights and vectors that a warp reads.
_NUMBERS = 3072
#: Numbers of keys that are read at a time: of a cache, of a source.
_CACHED, _SOURCE = 2048, 4096
#: The most numbers of keys of a warp. Of more, the compiler reads some after others.
_KEYS = 2560


class Split(NamedTuple):
    """How a product of few vectors is divided among programs.

    Attributes:
        lines, together, block: see :func:`.layer_kernels.linear`.
        warps: of a program.
    """

    lines: int
    together: int
    block: int
    warps: int

    @classmethod
    def of(cls, vectors: int, inner: int) -> "Split":
        """That of so many vectors of a length."""
        block = power(inner)
        lines, together = _ALONE if vectors == 1 else TOGETHER
        if vectors > VECTORS or (vectors > _MANY and block <= _SHORT):
            lines, together = TOGETHER_OF_MANY
        warps = -(-(lines + together) * block // _NUMBERS)
        return cls(lines, together, block, power(warps))


def most_vectors(weight: Tensor, together: int, read: int = _READ, limit: int = VECTORS) -> int:
    """How many vectors at a time are faster multiplied by kernels than by PyTorch's operators.

    Args:
        weight: the matrix.
        together: vectors of a program.
        read: bytes that all programs may read.
        limit: of what is found.
    """
    size = weight.numel() * weight.element_size()
    return min(limit, together * max(1, read // size))


def most_symbols(weight: Tensor) -> int:
    """The same for source symbols, padding among them, which are read once a sentence."""
    _, together = TOGETHER_OF_MANY
    return most_vectors(weight, together, _READ_ONCE, _SYMBOLS)


def fits(feed: FeedForward, *linears: Linear) -> bool:
    """Whether a layer has an activation of the kernels, is not too wide, and needs no copies.

    Kernels read weights before they wait for others, so that no copy may be made for them. The
    weights of an interpreter on a CPU may be transposed.

    Args:
        feed: its last part.
        linears: the linear maps of its attention.
    """
    dim, inner = feed.outer.weight.shape
    within = feed.activation_name is not None and dim <= DIM and inner <= _INNER
    weights = [each.weight for each in (*linears, feed.inner, feed.outer)]
    usable = all(each.is_contiguous() or each.device.type == "cpu" for each in weights)
    return within and usable and supports(weights[0])


class Seen(NamedTuple):
    """What queries look at, as :func:`.layer_kernels.attend` takes it."""

    keys: Tensor
    values: Tensor
    held: Optional[Tensor] = None
    limits: Optional[Tensor] = None
    mask: Optional[Tensor] = None
    capacity: int = 0
    source: int = 0
    beams: int = 1


class Own(NamedTuple):
    """What a decoder's self-attention looks at: see :meth:`.FusedLayers.run`."""

    held: Tensor
    limits: Optional[Tensor]
    cache: Tensor  # (2, rows, capacity, heads, head_dim)

    def seen(self, inner: Tensor, new: int) -> Seen:
        """The cache. ``inner`` is (vectors, 3 * dim), queries, keys and values; ``new`` a row."""
        keys, values = self.cache
        return Seen(keys, values, self.held, self.limits, capacity=keys.size(1))


class Among(NamedTuple):
    """What an encoder's self-attention looks at: the vectors of a row."""

    mask: Tensor  # (rows, src), 0 or -inf

    def seen(self, inner: Tensor, new: int) -> Seen:
        """What ``inner`` has; see :meth:`Own.seen`."""
        _, keys, values = inner.chunk(3, 1)
        return Seen(keys, values, mask=self.mask, source=new)


class Source(NamedTuple):
    """What attention to the source looks at."""

    keys_values: Tensor  # (2, sentences, heads, source, head_dim)
    mask: Tensor  # (sentences, 1, 1, source)
    beams: int

    def seen(self, inner: Tensor, new: int) -> Seen:
        """The source; see :meth:`Own.seen`."""
        keys, values = self.keys_values
        return Seen(keys, values, mask=self.mask, source=keys.size(2), beams=self.beams)


class Flow:
    """Vectors on their way through a stack of layers.

    Each sublayer is entered by a product, and left by another one, to which the vectors as they
    were are added. A layer normalisation is applied by the product that reads what it gives.

    Args:
        kernels: the module of them.
        options: of their launches.
        hidden: (vectors, dim); not changed.
    """

    def __init__(self, kernels: Any, options: Mapping[str, Any], hidden: Tensor) -> None:
        self._kernels, self._options, self._hidden = kernels, options, hidden
        self._inner = hidden
        self._pending: Optional[Norm] = None  # what ``_hidden`` still has to go through
        self._next: Optional[Norm] = None  # the same, once the sublayer is left

    def enter(self, linear: Linear, norm: Norm, norm_first: bool, activation: str = "none") -> None:
        """Enter a sublayer, whose norm stands at its begin or at its end."""
        first = norm if norm_first else self._pending
        normed = self._hidden
        if first is not None and not norm_first:
            normed = torch.empty_like(self._hidden)
        self._inner = self._product(self._hidden, linear, first, normed, activation)
        self._hidden, self._next = normed, None if norm_first else norm

    def leave(self, linear: Linear) -> None:
        """Leave it."""
        self._hidden = self._product(self._inner, linear, added=self._hidden)
        self._pending = self._next

    def feed_forward(self, feed: FeedForward) -> None:
        """Enter and leave the last sublayer of a layer."""
        self.enter(feed.inner, feed.norm, feed.norm_first, feed.activation_name or "none")
        self.leave(feed.outer)

    def end(
        self, final: Optional[Norm], shape: Sequence[int], wanted: Optional[Tensor] = None
    ) -> Tensor:
        """The vectors, behind the last layer and what follows it.

        Args:
            final: what follows it.
            shape: rows, and vectors of each.
            wanted: (rows, some, 1) long, the indices of those that are wanted; None: all.

        Returns:
            (rows * new, dim), or (rows * some, dim).
        """
        norms = [norm for norm in (self._pending, final) if norm is not None]
        if not norms and wanted is not None:
            return chosen(self._hidden.view(*shape, -1), wanted).flatten(0, 1)
        for norm in norms:
            self._hidden = self._normalised(norm, shape, wanted)
            if wanted is not None:
                shape, wanted = (shape[0], wanted.size(1)), None
        return self._hidden

    def _normalised(self, norm: Norm, shape: Sequence[int], wanted: Optional[Tensor]) -> Tensor:
        """See :func:`.layer_kernels.normalise`."""
        (rows, new), inner = shape, self._hidden.size(1)
        each = new if wanted is None else wanted.size(1)
        outputs = self._hidden.new_empty(rows * each, inner)
        self._kernels.normalise[rows, each](
            self._hidden, norm.weight, norm.bias, norm.epsilon, wanted, outputs, new, inner,
            wanted is not None, power(inner), num_warps=1, **self._options,
        )  # fmt: skip
        return outputs

    def _product(
        self,
        inputs: Tensor,
        linear: Linear,
        norm: Optional[Norm] = None,
        normed: Optional[Tensor] = None,
        activation: str = "none",
        added: Optional[Tensor] = None,
    ) -> Tensor:
        """See :func:`.layer_kernels.linear`; normalised inputs go to ``normed``, if it is new."""
        (vectors, inner), outer = inputs.shape, linear.weight.size(0)
        split = Split.of(vectors, inner)
        outputs = inputs.new_empty(vectors, outer)
        self._kernels.linear[-(-outer // split.lines), -(-vectors // split.together)](
            inputs,
            None if norm is None else norm.weight,
            None if norm is None else norm.bias,
            0.0 if norm is None else norm.epsilon,
            normed,
            linear.weight.contiguous(),  # A CPU, which interprets this, may have it transposed.
            linear.bias,
            added,
            outputs,
            vectors,
            outer,
            inner,
            norm is not None,
            norm is not None and normed is not inputs,
            linear.bias is not None,
            ACTIVATIONS[activation],
            added is not None,
            split.lines,
            split.together,
            split.block,
            num_warps=split.warps,
            **self._options,
        )
        return outputs

    def attend(
        self,
        heads: int,
        shape: Sequence[int],
        seen: Union[Own, Among, Source],
        wanted: Optional[Tensor] = None,
    ) -> None:
        """Let the queries, and in self-attention keys and values, become what they found.

        Args:
            heads: of the attention.
            shape: rows, and vectors of each.
            seen: what they look at.
            wanted: (rows, some, 1) long, the indices of those that flow on; None: all.
        """
        (rows, new), width = shape, self._hidden.size(1)
        size, looked = width // heads, seen.seen(self._inner, new)
        own, among = isinstance(seen, Own), isinstance(seen, Among)
        span, fresh = power(size), power(new) if own else 1
        block = max(1, (_CACHED if own else _SOURCE) // span)
        entries = (block + fresh if own else block) * span
        some = 0 if wanted is None else wanted.size(1)
        kept = None if wanted is None else self._hidden.new_empty(rows * some, width)
        outputs = self._inner.new_empty(rows * (some or new), width)
        self._kernels.attend[rows * (new + some), heads](
            self._inner,
            looked.held,
            looked.limits,
            looked.keys,
            looked.values,
            looked.mask,
            wanted,
            None if kept is None else self._hidden,
            kept,
            outputs,
            looked.capacity,
            new,
            some,
            looked.source,
            looked.beams,
            size**-0.5,
            heads,
            size,
            own,
            among,
            looked.limits is not None,
            wanted is not None,
            span,
            block,
            fresh,
            num_warps=power(-(-entries // _KEYS)),
            **self._options,
        )
        self._inner, self._hidden = outputs, self._hidden if kept is None else kept
