"""Matrix products with fixed weights, packed once for many small calls."""

import ctypes
import weakref
from typing import Any, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..fairseq_compat.held_in_half import widened
from . import native
from .packed_files import Place
from .spans import Spans
from .threads import kernel_threads
from .weights import NotFiniteError, is_finite

# In elements, for float32.  Below SMALL the plain layout is as fast and saves the copy; from
# LARGE_MATRIX on a matrix comes from memory, and the packed layout is as fast for one row too.
SMALL = 1 << 17
LARGE_MATRIX = 1 << 20


class Linear:
    """``inputs @ weight.T + bias`` for inputs of few rows.

    On a CPU with oneDNN the weight is kept in oneDNN's own blocked layout: at 2 to
    30 rows, the width of a verified draft, that is 1.3 to 2 times as fast as the plain
    layout, which is packed anew in every call.  One row in float32 is faster without.

    Args:
        weight: (outputs, inputs), already in the dtype and on the device to run in.
        bias: (outputs,) or ``None``.
    """

    def __init__(self, weight: Tensor, bias: Optional[Tensor] = None) -> None:
        outputs, inputs = weight.shape
        single = weight.dtype == torch.float32
        self.bias = bias
        self._packed = _pack(weight) if weight.numel() >= SMALL or not single else None
        self._packed_from = 2 if single and weight.numel() < LARGE_MATRIX else 1
        if self._packed is not None and self._packed_from == 1:
            weight = weight.new_empty(0, inputs)  # never read
        elif single and inputs < outputs and weight.device.type == "cpu":
            # A product with one row reads the matrix along its longer side fastest.
            weight = weight.t().contiguous().t()
        self.weight = weight

    @classmethod
    def of(
        cls, weights: Sequence[Tensor], biases: Optional[Sequence[Tensor]], dtype: torch.dtype
    ) -> "Linear":
        """One that gives the outputs of all ``weights`` side by side.

        Args:
            weights: (outputs, inputs) each.
            biases: (outputs,) each, or None for all.
            dtype: the type to run in; the weights' own, if it is an integer type.
        """
        dtype = dtype if dtype.is_floating_point else weights[0].dtype
        return cls(_joined(weights, dtype), None if biases is None else _joined(biases, dtype))

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply.

        Args:
            inputs: (rows, inputs).

        Returns:
            (rows, outputs).
        """
        if self._packed is None or inputs.size(0) < self._packed_from:
            return F.linear(inputs, self.weight, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, "none", [], ""
        )
        return product


def _pack(weight: Tensor) -> Optional[Tensor]:
    """``weight`` in oneDNN's layout; ``None`` where this build or device has none.

    These are the operators that ``torch.compile`` itself uses for frozen weights
    on CPUs; they are not documented, so any refusal means the plain layout.
    """
    if weight.device.type != "cpu" or weight.dtype == torch.float64:
        return None
    try:
        packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
        probe = weight.new_zeros(2, weight.size(1))
        torch.ops.mkldnn._linear_pointwise(probe, packed, None, "none", [], "")
    except (RuntimeError, AttributeError):
        return None
    return packed


def _joined(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The tensors one below the other in ``dtype``; a single one is not copied without need."""
    parts = [widened(each).detach().to(dtype) for each in tensors]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def parameters_of(*modules: nn.Linear) -> Tuple[List[Tensor], Optional[List[Tensor]]]:
    """Weights of several modules, and their biases: all of them have one, or none has."""
    weights = [module.weight for module in modules]
    if modules[0]._parameters["bias"] is None:
        return weights, None
    return weights, [module.bias for module in modules]


class NativeLinear:
    """``inputs @ weight.T + bias`` with packed weights.

    Args:
        weights: (outputs, inputs) each; their outputs are put side by side.
        biases: (outputs,) each, or None for all.
        dtype: of :data:`native.WEIGHT_TYPES`. float32 weights of which 16 bits hold each one, as
            after a training in half precision, are kept in 16 bits. Products are the same.
        exact: one of the same weights in float32, if there is one, which is read instead of them.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Optional[Sequence[Tensor]],
        dtype: torch.dtype,
        exact: "Optional[NativeLinear]" = None,
    ) -> None:
        self.outputs = sum(weight.size(0) for weight in weights)
        self.inputs = weights[0].size(1)
        self._library = native.library()
        form = self.outputs, self.inputs, native.WEIGHT_TYPES[dtype]
        place = Place.of([*weights, *(biases or [])], str(dtype))
        self.handle: Optional[int] = None
        if place is not None:
            self.handle = place.read(lambda file: self._library.linear_open(file, *form))
        if self.handle is None:
            self.handle = self._pack(weights, biases, form, exact)
            if place is not None:
                place.write(lambda file: bool(self._library.linear_save(self.handle, file)))
        self._free = weakref.finalize(self, self._library.linear_free, self.handle)
        self._free.atexit = False  # Threads may still decode with it when the interpreter ends.

    def _pack(
        self,
        weights: Sequence[Tensor],
        biases: Optional[Sequence[Tensor]],
        form: Tuple[int, int, int],
        exact: "Optional[NativeLinear]",
    ) -> int:
        """The handle of what the kernels pack in this form: outputs, inputs and type."""
        handle: Optional[int]
        if exact is not None:
            handle = self._library.linear_rounded(exact.handle, form[2], kernel_threads())
            return native.made(handle)
        bias = None
        if biases is not None:
            bias = native.float_weight(_joined(biases, torch.float32))
        weight, held = native.matrix(weights)
        if not is_finite(weight):
            raise NotFiniteError("weights of a linear map")
        handle = self._library.linear_new(
            native.pointer(weight), held, native.pointer(bias), *form, kernel_threads()
        )
        return native.made(handle)

    @property
    def bits(self) -> int:
        """What each weight takes."""
        return int(self._library.linear_bits(self.handle))

    def give_away(self) -> Optional[int]:
        """The handle, for an owner that will free it."""
        self._free.detach()
        handle, self.handle = self.handle, None
        return handle

    def __call__(self, inputs: Tensor) -> Tensor:
        """(rows, inputs) to (rows, outputs), float32."""
        inputs = inputs.float().contiguous()
        out = inputs.new_empty(inputs.size(0), self.outputs)
        self._library.linear_run(
            self.handle, inputs.data_ptr(), out.size(0), out.data_ptr(), kernel_threads()
        )
        return out

    def by_vector(self, inputs: Tensor, spans: Spans, count: int, heads: int) -> Tensor:
        """The same, for outputs that are ``count`` vectors of ``heads`` parts each.

        Args:
            inputs: (rows, length, inputs).
            spans: which of them count.
            count: how many vectors.
            heads: parts of each.

        Returns:
            (count, total * outputs / count); behind each other for each row: (heads, length, size
            of a part).
        """
        call = native.SourceKvCall()
        inputs = self.describe(inputs, inputs.size(1), spans, count, heads, call)
        out = inputs.new_empty(count, spans.total * (self.outputs // count))
        call.out = out.data_ptr()
        self._library.linear_source_kv(self.handle, ctypes.byref(call), kernel_threads())
        return out

    def describe(
        self,
        inputs: Tensor,
        stride: int,
        spans: Spans,
        count: int,
        heads: int,
        call: native.SourceKvCall,
    ) -> Tensor:
        """Point ``call`` to what :meth:`by_vector` takes, without a result.

        Args:
            inputs: (…, inputs).
            stride: vectors from a row's first one to the next row's; 0: ``spans`` count them all.
            spans, count, heads: as for :meth:`by_vector`.
            call: is written.

        Returns:
            the inputs, which have to be kept, as have the spans, while the call is used.
        """
        inputs = inputs.float().contiguous()
        call.inputs, call.rows, call.stride = inputs.data_ptr(), spans.lengths.size(0), stride
        call.begins, call.starts = spans.begins.data_ptr(), spans.starts.data_ptr()
        call.count, call.heads = count, heads
        return inputs

    def scores(self, inputs: Tensor, suppressed_id: int) -> Tuple[Tensor, Tensor]:
        """:meth:`__call__`, and the log of the sum of exponentials of each row, (rows,).

        Args:
            inputs: (rows, inputs).
            suppressed_id: an output that is -inf afterwards, or -1.
        """
        return scores_by(
            self._library.linear_scores, self.handle, inputs, self.outputs, suppressed_id
        )


def scores_by(
    run: Any, handle: Optional[int], inputs: Tensor, outputs: int, suppressed_id: int
) -> Tuple[Tensor, Tensor]:
    """Scores by a function of the kernels, and the log of the sum of exponentials of each row.

    Args:
        run: the function.
        handle: what it works with.
        inputs: (rows, inputs).
        outputs: how many there are.
        suppressed_id: an output that is -inf afterwards, or -1.

    Returns:
        (rows, outputs) and (rows,), float32.
    """
    inputs = inputs.float().contiguous()
    rows = inputs.size(0)
    out, normalisers = inputs.new_empty(rows, outputs), inputs.new_empty(rows)
    run(
        handle,
        inputs.data_ptr(),
        rows,
        suppressed_id,
        out.data_ptr(),
        normalisers.data_ptr(),
        kernel_threads(),
    )
    return out, normalisers
