"""The layers of a Transformer run by the native kernels, one call for all of them."""

import ctypes
import weakref
from ctypes import c_float, c_void_p
from typing import Any, List, Optional, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import native
from .kv_cache import KVCache

#: Types that the weights may be kept in; activations are float32 in both.
WEIGHT_TYPES = (torch.float32, torch.bfloat16)


class NativeLinear:
    """``inputs @ weight.T + bias`` with packed weights.

    Args:
        weights: (outputs, inputs) each; their outputs are put side by side.
        biases: (outputs,) each, or None for all.
        dtype: of :data:`WEIGHT_TYPES`.
    """

    def __init__(
        self,
        weights: Sequence[Tensor],
        biases: Optional[Sequence[Tensor]],
        dtype: torch.dtype,
    ) -> None:
        weight = native.float_weight(torch.cat([each.detach() for each in weights]))
        bias = None
        if biases is not None:
            bias = native.float_weight(torch.cat([each.detach() for each in biases]))
        self.outputs, self.inputs = weight.shape
        self._library = native.library()
        self.handle: Optional[int] = self._library.linear_new(
            native.pointer(weight),
            native.pointer(bias),
            self.outputs,
            self.inputs,
            int(dtype == torch.bfloat16),
        )
        self._free = weakref.finalize(self, self._library.linear_free, self.handle)

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
            self.handle, inputs.data_ptr(), out.size(0), out.data_ptr(), torch.get_num_threads()
        )
        return out

    def scores(self, inputs: Tensor) -> "tuple[Tensor, Tensor]":
        """The same, and the log of the sum of exponentials of each row, (rows,)."""
        inputs = inputs.float().contiguous()
        rows = inputs.size(0)
        out, normalisers = inputs.new_empty(rows, self.outputs), inputs.new_empty(rows)
        self._library.scores_run(
            self.handle,
            inputs.data_ptr(),
            rows,
            out.data_ptr(),
            normalisers.data_ptr(),
            torch.get_num_threads(),
        )
        return out, normalisers


def linear_of(dtype: torch.dtype, *modules: nn.Linear) -> NativeLinear:
    """One product for several modules; all of them have a bias, or none has."""
    biases = None
    if modules[0]._parameters["bias"] is not None:
        biases = [module.bias for module in modules]
    return NativeLinear([module.weight for module in modules], biases, dtype)


class NativeLayers:
    """Layers and last norm of a fairseq Transformer encoder or decoder.

    Args:
        layers: fairseq's layers; see :meth:`supports`.
        final_norm: fairseq's norm behind the last layer, or None.
        dtype: of :data:`WEIGHT_TYPES`.
    """

    def __init__(
        self, layers: Sequence[Any], final_norm: Optional[nn.LayerNorm], dtype: torch.dtype
    ) -> None:
        self._library = native.library()
        first = layers[0]
        self.heads = first.self_attn.num_heads
        self._handle: int = self._library.stack_new(
            first.embed_dim, self.heads, int(first.normalize_before), _activation(first)
        )
        weakref.finalize(self, self._library.stack_free, self._handle)
        for layer in layers:
            self._add(layer, dtype)
        if final_norm is not None:
            weight = native.float_weight(final_norm.weight)
            bias = native.float_weight(final_norm.bias)
            self._library.stack_final_norm(
                self._handle, weight.data_ptr(), bias.data_ptr(), final_norm.eps
            )

    @staticmethod
    def supports(
        layers: Sequence[Any], device: torch.device, own_type: torch.dtype, dtype: torch.dtype
    ) -> bool:
        """Whether the kernels can run these layers, which fairseq's own engine can.

        Args:
            layers: fairseq's layers.
            device: where they are.
            own_type: the type of their weights.
            dtype: the type to keep weights in.
        """
        if device.type != "cpu" or dtype not in WEIGHT_TYPES or own_type == torch.float64:
            return False
        return all(_activation(layer) is not None for layer in layers) and (
            native.library() is not None
        )

    def _add(self, layer: Any, dtype: torch.dtype) -> None:
        own, source = layer.self_attn, getattr(layer, "encoder_attn", None)
        products: List[Optional[NativeLinear]] = [
            linear_of(dtype, own.q_proj, own.k_proj, own.v_proj),
            linear_of(dtype, own.out_proj),
            None if source is None else linear_of(dtype, source.q_proj),
            None if source is None else linear_of(dtype, source.out_proj),
            linear_of(dtype, layer.fc1),
            linear_of(dtype, layer.fc2),
        ]
        own_norm = layer.self_attn_layer_norm
        modules = [own_norm, layer.encoder_attn_layer_norm if source else own_norm]
        modules.append(layer.final_layer_norm)
        vectors = [
            native.float_weight(vector)
            for module in modules
            for vector in (module.weight, module.bias)
        ]
        norms = (c_void_p * 6)(*(vector.data_ptr() for vector in vectors))
        epsilons = (c_float * 3)(*(module.eps for module in modules))
        handles = [each.give_away() if each is not None else None for each in products]
        self._library.stack_layer(self._handle, *handles, norms, epsilons)

    def encode(self, embedded: Tensor, mask: Optional[Tensor]) -> Tensor:
        """Run encoder layers: every input sees every other.

        Args:
            embedded: (rows, length, dim) contiguous float32.
            mask: (rows, length) 0, or -inf where nothing may be seen; None for none.

        Returns:
            (rows, length, dim).
        """
        rows, width, _ = embedded.shape
        out = torch.empty_like(embedded)
        call = native.Call(
            rows=rows,
            width=width,
            into=embedded.data_ptr(),
            out=out.data_ptr(),
            own_mask=native.pointer(mask),
        )
        self._library.stack_run(self._handle, ctypes.byref(call), torch.get_num_threads())
        return out

    def decode(
        self,
        embedded: Tensor,
        cache: KVCache,
        limits: Optional[Tensor],
        source: Tensor,
        source_mask: Optional[Tensor],
    ) -> Tensor:
        """Run decoder layers behind what is cached, and put keys and values into the cache.

        Args:
            embedded: (rows, new, dim) float32.
            cache: reserved for ``new`` entries a row.
            limits: (rows, new) slots that each input sees; None is causal.
            source: (2 * layers, rows, heads, src, head_dim) contiguous.
            source_mask: (rows, 1, 1, src) to add to the scores, or None.

        Returns:
            (rows, new, dim).
        """
        rows, width, _ = embedded.shape
        embedded, lengths = embedded.float().contiguous(), cache.lengths.contiguous()
        limits = None if limits is None else limits.contiguous()
        out = torch.empty_like(embedded)
        call = native.Call(
            rows=rows,
            width=width,
            into=embedded.data_ptr(),
            out=out.data_ptr(),
            starts=lengths.data_ptr(),
            limits=native.pointer(limits),
            cache=cache.store.data_ptr(),
            capacity=cache.capacity,
            source=source.data_ptr(),
            source_mask=native.pointer(source_mask),
            source_length=source.size(3),
        )
        self._library.stack_run(self._handle, ctypes.byref(call), torch.get_num_threads())
        return out


def _activation(layer: Any) -> Optional[int]:
    """The kernels' number of a layer's activation; None if they do not know it."""
    names = {F.relu: "relu", F.gelu: "gelu"}
    function = layer.activation_fn
    name = names.get(function) or ("gelu" if function.__name__ == "gelu" else None)
    return None if name is None else native.ACTIVATIONS[name]
