"""The layers of a Transformer run by the native kernels, one call for all of them."""

import ctypes
from ctypes import c_float, c_void_p
from typing import Any, List, Optional, Sequence

import torch
from torch import Tensor, nn

from ..fairseq_compat.mapping import forget_pages
from . import native
from .backend import Backend
from .decoder_layer import activation_name
from .free_memory import HEAP
from .linear import NativeLinear, parameters_of
from .spans import Spans
from .threads import kernel_threads


class NativeLayers:
    """Layers and last norm of a fairseq Transformer encoder or decoder.

    Args:
        layers: fairseq's layers; see :meth:`unsupported`.
        final_norm: fairseq's norm behind the last layer, or None.
        dtype: of :data:`native.WEIGHT_TYPES`.
    """

    def __init__(
        self, layers: Sequence[Any], final_norm: Optional[nn.LayerNorm], dtype: torch.dtype
    ) -> None:
        self._library = native.library()
        HEAP.ask(self._library.stack_free_memory)
        first = layers[0]
        self._dim = first.embed_dim
        heads, norm_first = first.self_attn.num_heads, int(first.normalize_before)
        self.handle = native.own(self, "stack", self._dim, heads, norm_first, _activation(first))
        for layer in layers:
            self._add(layer, dtype)
        if final_norm is not None:
            weight = native.float_weight(final_norm.weight)
            bias = native.float_weight(final_norm.bias)
            self._library.stack_final_norm(
                self.handle, weight.data_ptr(), bias.data_ptr(), final_norm.eps
            )

    @staticmethod
    def unsupported(layers: Sequence[Any], backend: Backend, dtype: torch.dtype) -> Optional[str]:
        """Why the kernels cannot run these layers, in a few words; None if they can.

        Args:
            layers: fairseq's layers, of a kind that the engine runs on PyTorch's operators.
            backend: who computes.
            dtype: the type to pack weights in.
        """
        for layer in layers:
            if _activation(layer) is None:
                name = getattr(layer.activation_fn, "__name__", "another")
                return f"the native kernels have no activation {name}"
        return backend.unsupported(layers[0].fc1.weight, dtype)

    def _add(self, layer: Any, dtype: torch.dtype) -> None:
        own, source = layer.self_attn, getattr(layer, "encoder_attn", None)
        parts: List[Sequence[nn.Linear]] = [
            (own.q_proj, own.k_proj, own.v_proj),
            (own.out_proj,),
            () if source is None else (source.q_proj,),
            () if source is None else (source.out_proj,),
            (layer.fc1,),
            (layer.fc2,),
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
        # Each has an owner until all of them are packed.
        maps = [NativeLinear(*parameters_of(*part), dtype) if part else None for part in parts]
        handles = [None if each is None else each.give_away() for each in maps]
        self._library.stack_layer(self.handle, *handles, norms, epsilons)
        forget_pages(layer)

    def encode(self, vectors: Tensor, mask: Optional[Tensor]) -> Tensor:
        """Run encoder layers: every input sees every other.

        Args:
            vectors: (rows, length, dim) contiguous float32.
            mask: (rows, length) 0, or -inf where nothing may be seen; None for none.

        Returns:
            (rows, length, dim).
        """
        rows, width, _ = vectors.shape
        out = torch.empty_like(vectors)
        call = native.StackCall(
            rows=rows,
            width=width,
            vectors=vectors.data_ptr(),
            out=out.data_ptr(),
            self_mask=native.pointer(mask),
        )
        self._library.stack_run(self.handle, ctypes.byref(call), kernel_threads())
        return out

    def encode_rows(self, tokens: Tensor, spans: Spans, positions: Optional[Tensor]) -> Tensor:
        """Embed tokens and run encoder layers: every token sees every other of its row.

        Args:
            tokens: (rows, length) long; those of a row are at the positions 0, 1, ….
            spans: where the tokens of each row are; all others are padding.
            positions: (limit, dim) vectors to be added to tokens, or None.

        Returns:
            (tokens, dim), those of a row behind each other, without what is padding.
        """
        rows, width = tokens.shape
        tokens = tokens.contiguous()
        out = torch.empty(spans.total, self._dim, dtype=torch.float32)
        call = native.EncodeCall(
            tokens=tokens.data_ptr(),
            rows=rows,
            stride=width,
            order=spans.order.data_ptr(),
            starts=spans.begins.data_ptr(),
            lengths=spans.lengths.data_ptr(),
            places=spans.starts.data_ptr(),
            positions=native.pointer(positions),
            position_limit=0 if positions is None else positions.size(0),
            out=out.data_ptr(),
        )
        self._library.encode_run(self.handle, ctypes.byref(call), kernel_threads())
        return out

    def embed_with(
        self, weight: Tensor, scale: float, masks: Optional[Tensor], norm: Optional[nn.LayerNorm]
    ) -> None:
        """Let :meth:`encode_rows` and :meth:`decode` take tokens.

        Args:
            weight: (vocabulary, dim) contiguous float32 token vectors, or such as are held in half;
                kept alive here.
            scale: factor of the token vectors.
            masks: (count, dim) vectors that stand where there is no token yet, not scaled.
            norm: behind the sum of token and position vectors, or None.
        """
        numbers, held = native.matrix([weight])
        self._embedding = numbers
        extra = native.float_weight(numbers[:0] if masks is None else masks)
        vectors: List[Optional[Tensor]] = [None, None]
        if norm is not None:
            vectors = [native.float_weight(norm.weight), native.float_weight(norm.bias)]
        self._library.stack_embedding(
            self.handle,
            numbers.data_ptr(),
            held,
            scale,
            extra.data_ptr(),
            extra.size(0),
            *map(native.pointer, vectors),
            0.0 if norm is None else norm.eps,
        )

    def decode(
        self,
        call: Any,
        inputs: Tensor,
        width: int,
        starts: Tensor,
        limits: Optional[Tensor] = None,
        counts: Optional[Tensor] = None,
        block: int = 0,
    ) -> Tensor:
        """Run decoder layers behind what is cached, and put keys and values into the cache.

        Args:
            call: a :class:`native.StackCall` that describes the cache, with room for ``width``
                entries a row, and the source; where inputs are tokens, their positions too.
            inputs: (rows, new, dim) vectors; or (rows, new) tokens; or, with ``counts``,
                (rows, …) all tokens of each row, the new ones at ``starts``.
            width: inputs a row.
            starts: (rows,) long, valid entries of the cache.
            limits: (rows, new) long, slots that each input sees; None is causal.
            counts: (rows,) long, new tokens of each row, which ``block`` masks follow that see
                all of the row; None where all inputs are tokens.
            block: masks a row.

        Returns:
            (rows, new, dim), or with ``counts`` that of the masks, (rows, block, dim).
        """
        rows, starts = inputs.size(0), starts.contiguous()
        if inputs.dim() == 3:
            inputs = inputs.float().contiguous()
            call.vectors = inputs.data_ptr()
        else:
            inputs = inputs.contiguous()
            call.tokens, call.token_stride = inputs.data_ptr(), inputs.size(1)
        limits = None if limits is None else limits.contiguous()
        out = torch.empty(rows, width if counts is None else block, self._dim, dtype=torch.float32)
        call.rows, call.width, call.out = rows, width, out.data_ptr()
        call.starts, call.limits = starts.data_ptr(), native.pointer(limits)
        call.counts, call.block = native.pointer(counts), block
        call.from_starts = int(counts is not None)
        self._library.stack_run(self.handle, ctypes.byref(call), kernel_threads())
        return out


def _activation(layer: Any) -> Optional[int]:
    """The kernels' number of a layer's activation; None if they do not know it."""
    name = activation_name(layer)
    return None if name is None else native.ACTIVATIONS[name]
