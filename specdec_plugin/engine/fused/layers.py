"""The layers of a decoder that is fed few vectors, in eight kernels each, for CUDA devices."""

from typing import Any, Mapping, NamedTuple, Optional, Sequence, Union

import torch
from torch import Tensor

from ..decoder_layer import DecoderLayer, Norm
from ..early_launch import launch_options
from ..graphs.capture import Graphs
from ..graphs.tensors import GRAIN, Shape, Sizes, StaticTensors
from ..linear import Linear
from ..triton_kernels import power, supports, tried

#: The most vectors at a time.
VECTORS = 32
#: The most bytes of a matrix that programs read all together. Each program reads its weights anew
#: for its vectors, from the second level's cache. PyTorch's products read them once for all.
_READ = 1 << 24
#: The widest layers, and the widest inner layers, that the kernels are for.
_DIM, _INNER = 1024, 4096
#: Outputs and vectors of a program, where there is a single vector, and where there are more.
_ALONE, _TOGETHER = (2, 1), (4, 2)
#: The same for many short vectors: from how many on, and up to which length.
_MANY, _SHORT, _TOGETHER_OF_MANY = 16, 256, (4, 4)
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
        lines, together = _ALONE if vectors == 1 else _TOGETHER
        if vectors > _MANY and block <= _SHORT:
            lines, together = _TOGETHER_OF_MANY
        warps = -(-(lines + together) * block // _NUMBERS)
        return cls(lines, together, block, power(warps))


def most_vectors(weight: Tensor, together: int, read: int = _READ) -> int:
    """How many vectors at a time are faster multiplied by kernels than by PyTorch's operators.

    Args:
        weight: the matrix.
        together: vectors of a program.
        read: bytes that all programs may read.
    """
    size = weight.numel() * weight.element_size()
    return min(VECTORS, together * max(1, read // size))


def fused_layers(layers: Sequence[DecoderLayer], final: Optional[Norm]) -> "Optional[FusedLayers]":
    """The layers in kernels, tried once; None where they do not run.

    Args:
        layers: of a decoder, on the device to run on.
        final: what follows them.
    """
    if not all(supports(layer.own_in.weight) and _fits(layer) for layer in layers):
        return None

    def make() -> FusedLayers:
        found = FusedLayers(layers, final)
        found.attempt()
        return found

    return tried("A decoder", make)


def _fits(layer: DecoderLayer) -> bool:
    """Whether a layer has the kernels' activation, is not too wide, and needs no copies.

    Kernels read weights before they wait for others, so that no copy may be made for them. The
    weights of an interpreter on a CPU may be transposed.
    """
    feed = layer.feed_forward
    dim, inner = feed.outer.weight.shape
    within = feed.activation is torch.relu_ and dim <= _DIM and inner <= _INNER
    linears = (layer.own_in, layer.own_out, layer.source_in, layer.source_out)
    weights = [each.weight for each in (*linears, feed.inner, feed.outer)]
    return within and all(each.is_contiguous() or each.device.type == "cpu" for each in weights)


class FusedLayers:
    """Runs the layers of a decoder.

    What it does depends on shapes alone, and never waits for the device: it can be captured.

    Args:
        layers: of the decoder.
        final: what follows them.

    Attributes:
        most: vectors at a time.

    Raises:
        ImportError: Triton is not installed.
    """

    def __init__(self, layers: Sequence[DecoderLayer], final: Optional[Norm]) -> None:
        from . import layer_kernels

        self._kernels: Any = layer_kernels
        self._layers, self._final = layers, final
        self._options = launch_options(layers[0].own_in.weight.device)
        _, together = _TOGETHER
        self.most = min(
            most_vectors(each.weight, together)
            for layer in layers
            for each in (layer.own_in, layer.feed_forward.inner)
        )

    def attempt(self) -> None:
        """Run each kernel once, with a single vector and with more of them, and with most."""
        layer = self._layers[0]
        weight = layer.own_in.weight
        shape = Shape(len(self._layers), layer.heads, layer.head_dim, weight.dtype, weight.device)
        tensors = StaticTensors(Sizes.of(2, 1, GRAIN, GRAIN), shape, Graphs.of(weight.device))
        trials = [(1, 1, False), (2, 1, False), (2, 2, True)]
        if weight.device.type == "cuda":  # An interpreter takes half a minute for so many.
            trials += [(1, self.most, limited) for limited in (False, True)]
        for rows, new, limited in trials:
            held = tensors.lengths[:rows]
            limits = held.unsqueeze(1) + tensors.slots[:new] + 1 if limited else None
            self.run(weight.new_zeros(rows, new, weight.size(1)), held, limits, tensors)

    def run(
        self,
        hidden: Tensor,
        held: Tensor,
        limits: Optional[Tensor],
        tensors: StaticTensors,
        beams: int = 1,
    ) -> Tensor:
        """Run the layers over new vectors of the first rows of a batch.

        Args:
            hidden: (rows, new, dim), of at most :attr:`most` vectors; not changed.
            held: (rows,) long, what each row has in the cache.
            limits: (rows, new) long, how many slots each query sees; None: those up to its own.
            tensors: the batch, whose cache gets the keys and values.
            beams: rows of each sentence.

        Returns:
            (rows * new, dim).
        """
        shape = hidden.shape[:2]
        limits = None if limits is None else limits.contiguous()
        flow = _Flow(self._kernels, self._options, hidden.flatten(0, 1).contiguous())
        with torch.cuda.device_of(hidden):  # Triton launches on the current device.
            for index, layer in enumerate(self._layers):
                flow.enter(layer.own_in, layer.own_norm, layer.norm_first)
                flow.attend(layer, shape, _Own(held, limits, tensors.store[index]))
                flow.leave(layer.own_out)
                flow.enter(layer.source_in, layer.source_norm, layer.norm_first)
                source = tensors.source_kv[2 * index : 2 * index + 2]
                flow.attend(layer, shape, _Source(source, tensors.source_mask, beams))
                flow.leave(layer.source_out)
                feed = layer.feed_forward
                flow.enter(feed.inner, feed.norm, layer.norm_first, relu=True)
                flow.leave(feed.outer)
            return flow.end(self._final)


class _Own(NamedTuple):
    """What self-attention looks at: see :meth:`FusedLayers.run`."""

    held: Tensor
    limits: Optional[Tensor]
    cache: Tensor  # (2, rows, capacity, heads, head_dim)


class _Source(NamedTuple):
    """What attention to the source looks at."""

    keys_values: Tensor  # (2, sentences, heads, source, head_dim)
    mask: Tensor  # (sentences, 1, 1, source)
    beams: int


class _Flow:
    """Vectors on their way through a decoder.

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
        self._pending: Optional[Norm] = None  # of what ``_hidden`` is before it
        self._next: Optional[Norm] = None

    def enter(self, linear: Linear, norm: Norm, norm_first: bool, relu: bool = False) -> None:
        """Enter a sublayer, whose norm stands at its begin or at its end."""
        first = norm if norm_first else self._pending
        normed = self._hidden
        if first is not None and not norm_first:
            normed = torch.empty_like(self._hidden)
        self._inner = self._product(self._hidden, linear, first, normed, relu=relu)
        self._hidden, self._next = normed, None if norm_first else norm

    def leave(self, linear: Linear) -> None:
        """Leave it."""
        self._hidden = self._product(self._inner, linear, added=self._hidden)
        self._pending = self._next

    def end(self, final: Optional[Norm]) -> Tensor:
        """The vectors, behind the last layer and what follows it."""
        for norm in (self._pending, final):
            if norm is not None:
                self._hidden = self._normalised(self._hidden, norm)
        return self._hidden

    def _normalised(self, inputs: Tensor, norm: Norm) -> Tensor:
        """See :func:`.layer_kernels.normalise`."""
        (vectors, inner), outputs = inputs.shape, torch.empty_like(inputs)
        self._kernels.normalise[(vectors,)](
            inputs, norm.weight, norm.bias, norm.epsilon, outputs, inner, power(inner),
            num_warps=1, **self._options,
        )  # fmt: skip
        return outputs

    def _product(
        self,
        inputs: Tensor,
        linear: Linear,
        norm: Optional[Norm] = None,
        normed: Optional[Tensor] = None,
        relu: bool = False,
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
            relu,
            added is not None,
            split.lines,
            split.together,
            split.block,
            num_warps=split.warps,
            **self._options,
        )
        return outputs

    def attend(
        self, layer: DecoderLayer, shape: Sequence[int], seen: "Union[_Own, _Source]"
    ) -> None:
        """Let the queries, and in self-attention keys and values, become what they found."""
        (rows, new), heads, size = shape, layer.heads, layer.head_dim
        outputs = self._inner.new_empty(rows * new, heads * size)
        held, limits, mask, capacity, source, beams = None, None, None, 0, 0, 1
        own = isinstance(seen, _Own)
        span, fresh = power(size), power(new) if own else 1
        block = max(1, (_CACHED if own else _SOURCE) // span)
        keys = (block + fresh if own else block) * span
        if isinstance(seen, _Own):
            held, limits, pair = seen
            capacity = pair.size(2)
        else:
            pair, mask, beams = seen
            source = pair.size(3)
        self._kernels.attend[rows * new, heads](
            self._inner,
            held,
            limits,
            pair[0],
            pair[1],
            mask,
            outputs,
            capacity,
            new,
            source,
            beams,
            size**-0.5,
            heads,
            size,
            own,
            limits is not None,
            span,
            block,
            fresh,
            num_warps=power(-(-keys // _KEYS)),
            **self._options,
        )
        self._inner = outputs
