"""The layers of a Transformer run by the native kernels, one call for all of them."""

import ctypes
import weakref
from ctypes import c_float, c_void_p
from typing import Any, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import native
from .kv_cache import KVCache
from .native import WEIGHT_TYPES


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
            WEIGHT_TYPES[dtype],
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

    def planes(self, inputs: Tensor, count: int, heads: int) -> Tensor:
        """The same, for outputs that are ``count`` vectors of ``heads`` parts each.

        Args:
            inputs: (rows, length, inputs).
            count: how many vectors.
            heads: parts of each.

        Returns:
            (count, rows, heads, length, size of a part) contiguous.
        """
        inputs = inputs.float().contiguous()
        rows, length, _ = inputs.shape
        out = inputs.new_empty(count, rows, heads, length, self.outputs // (count * heads))
        self._library.linear_source_kv(
            self.handle,
            inputs.data_ptr(),
            rows,
            length,
            count,
            heads,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def scores(self, inputs: Tensor, never: int) -> Tuple[Tensor, Tensor]:
        """:meth:`__call__`, and the log of the sum of exponentials of each row, (rows,).

        Args:
            inputs: (rows, inputs).
            never: an output that is -inf afterwards, or -1.
        """
        return scores_by(self._library.linear_scores, self.handle, inputs, self.outputs, never)


def scores_by(
    run: Any, handle: Optional[int], inputs: Tensor, outputs: int, never: int
) -> Tuple[Tensor, Tensor]:
    """Scores by a function of the kernels, and the log of the sum of exponentials of each row.

    Args:
        run: the function.
        handle: what it works with.
        inputs: (rows, inputs).
        outputs: how many there are.
        never: an output that is -inf afterwards, or -1.

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
        never,
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
        self._dim = first.embed_dim
        self.handle: int = self._library.stack_new(
            self._dim, first.self_attn.num_heads, int(first.normalize_before), _activation(first)
        )
        weakref.finalize(self, self._library.stack_free, self.handle)
        for layer in layers:
            self._add(layer, dtype)
        if final_norm is not None:
            weight = native.float_weight(final_norm.weight)
            bias = native.float_weight(final_norm.bias)
            self._library.stack_final_norm(
                self.handle, weight.data_ptr(), bias.data_ptr(), final_norm.eps
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
        self._library.stack_layer(self.handle, *handles, norms, epsilons)

    def encode(
        self, inputs: Tensor, mask: Optional[Tensor], positions: Optional[Tensor] = None
    ) -> Tensor:
        """Run encoder layers: every input sees every other.

        Args:
            inputs: (rows, length, dim) contiguous float32 vectors, or (rows, length) tokens,
                which stand at the places 0, 1, ….
            mask: (rows, length) 0, or -inf where nothing may be seen; None for none.
            positions: (places, dim) vectors to be added to tokens, or None.

        Returns:
            (rows, length, dim).
        """
        rows, width = inputs.shape[:2]
        given, inputs = inputs.dim() == 3, inputs.contiguous()
        out = torch.empty(rows, width, self._dim)
        call = native.StackCall(
            rows=rows,
            width=width,
            vectors=inputs.data_ptr() if given else None,
            tokens=None if given else inputs.data_ptr(),
            token_stride=width,
            positions=native.pointer(positions),
            position_limit=0 if positions is None else positions.size(0),
            out=out.data_ptr(),
            self_mask=native.pointer(mask),
        )
        self._library.stack_run(self.handle, ctypes.byref(call), torch.get_num_threads())
        return out

    def embed_with(
        self, weight: Tensor, scale: float, masks: Optional[Tensor], norm: Optional[nn.LayerNorm]
    ) -> None:
        """Let :meth:`encode` and :meth:`decode` take tokens.

        Args:
            weight: (vocabulary, dim) contiguous float32 token vectors; kept alive here.
            scale: factor of the token vectors.
            masks: (count, dim) vectors that stand where there is no token yet, not scaled.
            norm: behind the sum of token and position vectors, or None.
        """
        self._embedding = weight
        extra = native.float_weight(weight[:0] if masks is None else masks)
        vectors: List[Optional[Tensor]] = [None, None]
        if norm is not None:
            vectors = [native.float_weight(norm.weight), native.float_weight(norm.bias)]
        self._library.stack_embedding(
            self.handle,
            weight.data_ptr(),
            scale,
            extra.data_ptr(),
            extra.size(0),
            *map(native.pointer, vectors),
            0.0 if norm is None else norm.eps,
        )

    def decode(
        self,
        inputs: Tensor,
        width: int,
        cache: KVCache,
        source: Tensor,
        source_mask: Optional[Tensor],
        positions: Optional[Tensor] = None,
        limits: Optional[Tensor] = None,
        counts: Optional[Tensor] = None,
        block: int = 0,
    ) -> Tensor:
        """Run decoder layers behind what is cached, and put keys and values into the cache.

        Args:
            inputs: (rows, new, dim) vectors; or (rows, new) tokens; or, with ``counts``,
                (rows, …) all tokens of each row, the new ones at ``cache.lengths``.
            width: inputs a row.
            cache: with room for ``width`` entries a row.
            source: (2 * layers, rows, heads, src, head_dim) contiguous, rows where the cache's are.
            source_mask: (rows, 1, 1, src) to add to the scores, or None.
            positions: (places, dim) vectors to be added to tokens, or None.
            limits: (rows, new) slots that each input sees; None is causal.
            counts: (rows,) new tokens of each row, which ``block`` masks follow that see
                all of the row; None where all inputs are tokens.
            block: masks a row.

        Returns:
            (rows, new, dim), or with ``counts`` that of the masks, (rows, block, dim).
        """
        rows, lengths = inputs.size(0), cache.lengths.contiguous()
        given = inputs.dim() == 3
        inputs = inputs.float().contiguous() if given else inputs.contiguous()
        limits = None if limits is None else limits.contiguous()
        out = torch.empty(rows, width if counts is None else block, self._dim)
        call = native.StackCall(
            rows=rows,
            width=width,
            vectors=inputs.data_ptr() if given else None,
            tokens=None if given else inputs.data_ptr(),
            token_stride=inputs.size(1),
            from_starts=int(counts is not None),
            positions=native.pointer(positions),
            position_limit=0 if positions is None else positions.size(0),
            counts=native.pointer(counts),
            block=block,
            out=out.data_ptr(),
            starts=lengths.data_ptr(),
            limits=native.pointer(limits),
            total_rows=cache.store.size(2),
            row_index=native.pointer(cache.places),
            cache=cache.store.data_ptr(),
            capacity=cache.capacity,
            source_kv=source.data_ptr(),
            source_mask=native.pointer(source_mask),
            source_length=source.size(3),
        )
        self._library.stack_run(self.handle, ctypes.byref(call), torch.get_num_threads())
        return out


def _activation(layer: Any) -> Optional[int]:
    """The kernels' number of a layer's activation; None if they do not know it."""
    names = {F.relu: "relu", F.gelu: "gelu"}
    function = layer.activation_fn
    name = names.get(function) or ("gelu" if function.__name__ == "gelu" else None)
    return None if name is None else native.ACTIVATIONS[name]
