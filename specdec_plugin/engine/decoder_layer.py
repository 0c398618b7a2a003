"""One layer of a fairseq Transformer decoder, its weights fused and its operators few."""

from typing import Any, List, Optional, Sequence, Tuple

import torch
import torch.nn.functional as F
from fairseq.modules import gelu
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn

from ..fairseq_compat.held_in_half import widened
from .kv_cache import KVCache
from .linear import Linear, parameters_of


class Norm:
    """Layer normalisation with the weights of ``module`` in ``dtype``."""

    def __init__(self, module: nn.LayerNorm, dtype: torch.dtype) -> None:
        self.shape = tuple(module.normalized_shape)
        self.weight = widened(module.weight).detach().to(dtype)
        self.bias = widened(module.bias).detach().to(dtype)
        self.epsilon = module.eps

    def __call__(self, inputs: Tensor) -> Tensor:
        return torch.layer_norm(inputs, self.shape, self.weight, self.bias, self.epsilon)


def linear_of(dtype: torch.dtype, *modules: nn.Linear) -> Linear:
    """One :class:`Linear` that gives the outputs of all ``modules`` side by side."""
    return Linear.of(*parameters_of(*modules), dtype)


def every_layer(stack: Any) -> List[Any]:
    """All layers of an encoder or decoder; iterating would drop some at random under LayerDrop."""
    return [stack.layers[index] for index in range(len(stack.layers))]


def unusual_attention(attention: Any, dim: int) -> Optional[str]:
    """What an attention module has that no engine computes, in a few words; ``None``: nothing."""
    if attention.use_xformers or attention.bias_k is not None or attention.add_zero_attn:
        return "its attention is not the plain one"
    if attention.embed_dim != dim:
        return "attention heads were pruned from it"
    return None


def unusual_linear(modules: Sequence[Any], attentions: Sequence[Any]) -> Optional[str]:
    """Which linear map of a layer is something else, in a few words; ``None``: none is."""
    every = list(modules)
    for attention in attentions:
        every += [attention.q_proj, attention.k_proj, attention.v_proj, attention.out_proj]
    unusual = [type(module).__name__ for module in every if type(module) is not nn.Linear]
    return f"it has a {unusual[0]} for a linear map" if unusual else None


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, mask: Optional[Tensor], out: Linear
) -> Tensor:
    """Queries, (rows, heads, new, head_dim), to what they found, mapped: (rows * new, dim)."""
    found = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return out(found.transpose(1, 2).flatten(2).flatten(0, 1))


def activation_name(layer: Any) -> Optional[str]:
    """The activation of fairseq's layer, by its name in PyTorch; None: one that no kernel knows."""
    names = {F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}
    function = layer.activation_fn
    return names.get(function) or ("gelu" if function is gelu else None)


class FeedForward:
    """The last part of a layer, with its norm and residual.

    Args:
        layer: fairseq's layer of an encoder or a decoder.
        dtype: type to run in.

    Attributes:
        activation_name: see :func:`activation_name`.
    """

    def __init__(self, layer: Any, dtype: torch.dtype) -> None:
        self.norm_first = layer.normalize_before
        self.inner = linear_of(dtype, layer.fc1)
        self.outer = linear_of(dtype, layer.fc2)
        self.norm = Norm(layer.final_layer_norm, dtype)
        # In place where we can; fairseq's other activations allocate anyway.
        self.activation = torch.relu_ if layer.activation_fn is F.relu else layer.activation_fn
        self.activation_name = activation_name(layer)

    def __call__(self, hidden: Tensor) -> Tensor:
        """(rows * new, dim) each."""
        before = self.norm(hidden) if self.norm_first else hidden
        after = self.outer(self.activation(self.inner(before))).add_(hidden)
        return after if self.norm_first else self.norm(after)


class DecoderLayer:
    """Self-attention over the cache, attention over the source, feed-forward.

    Activations are matrices, (rows * new, dim): a product with a matrix is one operator.

    Args:
        layer: the fairseq layer.
        dtype: type to run in.
    """

    def __init__(self, layer: TransformerDecoderLayerBase, dtype: torch.dtype) -> None:
        own, source = layer.self_attn, layer.encoder_attn
        self.heads = own.num_heads
        self.head_dim = own.head_dim
        self.norm_first = layer.normalize_before
        self.own_in = linear_of(dtype, own.q_proj, own.k_proj, own.v_proj)
        self.own_out = linear_of(dtype, own.out_proj)
        self.own_norm = Norm(layer.self_attn_layer_norm, dtype)
        self.source_in = linear_of(dtype, source.q_proj)
        self.source_out = linear_of(dtype, source.out_proj)
        self.source_norm = Norm(layer.encoder_attn_layer_norm, dtype)
        self.feed_forward = FeedForward(layer, dtype)

    @staticmethod
    def unsupported(layer: nn.Module, attends: bool = True) -> Optional[str]:
        """Why ``layer`` cannot be run here, in a few words; ``None`` if it can.

        Args:
            layer: of a fairseq decoder.
            attends: whether it has to attend to a source; else it must not.
        """
        if not isinstance(layer, TransformerDecoderLayerBase):
            return f"it has a layer of type {type(layer).__name__}"
        for name in ("forward", "residual_connection"):
            if getattr(type(layer), name) is not getattr(TransformerDecoderLayerBase, name):
                return f"{type(layer).__name__} has its own {name}()"
        if (layer.encoder_attn is not None) != attends:
            return f"it {'does not attend' if attends else 'attends'} to a source"
        extras = (layer.attn_ln, layer.c_attn, layer.ffn_layernorm, layer.w_resid)
        if any(extra is not None for extra in extras):
            return "it has NormFormer's extra scaling (--scale-attn, -heads, -fc or -resids)"
        attentions = [layer.self_attn, layer.encoder_attn] if attends else [layer.self_attn]
        for attention in attentions:
            reason = unusual_attention(attention, layer.embed_dim)
            if reason is not None:
                return reason
        return unusual_linear([layer.fc1, layer.fc2], attentions)

    def run(
        self,
        hidden: Tensor,
        rows: int,
        cache: KVCache,
        index: int,
        mask: Optional[Tensor],
        source: Tuple[Tensor, Tensor],
        source_mask: Optional[Tensor],
    ) -> Tensor:
        """Compute the layer for the new tokens and put their keys and values into the cache.

        Args:
            hidden: (rows * new, dim); not changed.
            rows: rows of the batch.
            cache: reserved for ``new`` entries a row.
            index: this layer's index in the cache.
            mask: (rows or 1, 1, new, slots), 0 or -inf, added to the attention scores.
            source: keys and values of the source, each (sentences, heads, src, head_dim); as many
                rows follow each other for each sentence.
            source_mask: (sentences, 1, 1, src), likewise added.

        Returns:
            (rows * new, dim).
        """
        before = self.own_norm(hidden) if self.norm_first else hidden
        parts = self.own_in(before).view(rows, -1, 3, self.heads, self.head_dim)
        parts = parts.permute(2, 0, 3, 1, 4)  # (3, rows, heads, new, head_dim)
        keys, values = cache.write(index, parts[1:])
        after = attend(parts[0], keys, values, mask, self.own_out).add_(hidden)
        hidden = after if self.norm_first else self.own_norm(after)

        before = self.source_norm(hidden) if self.norm_first else hidden
        queries = self.source_in(before).view(source[0].size(0), -1, self.heads, self.head_dim)
        queries = queries.transpose(1, 2)
        after = attend(queries, *source, source_mask, self.source_out).add_(hidden)
        hidden = after if self.norm_first else self.source_norm(after)
        return self.feed_forward(hidden)
