"""A fairseq Transformer encoder run by the native kernels, or else by other engines."""

from typing import Any, Callable, List, Mapping, Optional, Tuple

import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from ..fairseq_compat.held_in_half import hold_none
from .backend import Backend, choose_backend
from .decoder_layer import every_layer, unusual_attention, unusual_linear
from .encoder_form import encoder_form
from .graphs.encoder import CapturedEncoder
from .native_layers import NativeLayers
from .positions import POSITIONS, PositionTable
from .ragged_encoding import RaggedEncoding
from .spans import Spans, amid
from .symbol_numbers import check_symbols
from .weights import Packed

#: Symbols of a batch up to which Python's lists are faster than NumPy.
_FEW = 100
#: Takes fairseq's ``net_input`` and gives what fairseq's encoder returns.
Encoder = Callable[[Mapping[str, Any]], Any]


def build_encoder(model: Any, backend: Optional[Backend] = None) -> Encoder:
    """The fastest way to run the encoder of a fairseq model in evaluation mode.

    Args:
        model: the model.
        backend: who computes; ``None`` chooses.
    """
    encoder = model.encoder
    backend = backend or choose_backend(next(model.parameters()).device)
    if FastEncoder.unsupported(encoder, backend) is None:
        return FastEncoder(encoder, backend)
    if backend.static and unusual_encoder(encoder) is None and _embeds_plainly(encoder):
        return CapturedEncoder(encoder)
    hold_none(model)
    run: Encoder = encoder.forward_torchscript
    return run


class FastEncoder(Packed):
    """Runs the layers in one call for all rows of one length, so that nothing is padded.

    Where the kernels cannot embed, or a text has the padding symbol amid others, fairseq's own
    module embeds, and rows are padded.

    Args:
        encoder: fairseq's encoder; see :meth:`unsupported`.
        backend: who computes.
    """

    def __init__(self, encoder: TransformerEncoderBase, backend: Backend) -> None:
        super().__init__(encoder)
        self.encoder, self._backend = encoder, backend
        self._layers: Optional[NativeLayers] = None
        self._positions: Optional[PositionTable] = None
        # The kernels look vectors up in a table, scale, add positions and normalise.
        simple = _embeds_plainly(encoder)
        self._symbols: Optional[int] = encoder.embed_tokens.num_embeddings if simple else None

    @staticmethod
    def unsupported(encoder: Any, backend: Backend) -> Optional[str]:
        """Why the kernels cannot give what this encoder gives, in a few words; None if they can."""
        unusual = unusual_encoder(encoder)
        if unusual is not None:
            return unusual
        weight = encoder.embed_tokens.weight
        if weight.dtype != torch.float32:
            return "its weights are not float32"
        return NativeLayers.unsupported(every_layer(encoder), backend, weight.dtype)

    def __call__(self, net_input: Mapping[str, Any]) -> Mapping[str, List[Tensor]]:
        """Encode a batch.

        Args:
            net_input: fairseq's ``src_tokens`` (rows, src) and ``src_lengths`` (rows,).

        Returns:
            as fairseq: ``encoder_out`` [(src, rows, dim)], with anything at padded
            positions, and ``encoder_padding_mask`` [(rows, src)], or [] if nothing is padded. Of a
            padded batch a :class:`.RaggedEncoding`, if the kernels embed.

        Raises:
            PluginError: a symbol is not in the model's dictionary.
        """
        self.refresh()
        if self._layers is None:
            return self.encoder.forward_torchscript(net_input)
        tokens = net_input["src_tokens"].long()
        padding = self._padding(tokens)
        if self._symbols is None or amid(padding):
            encoded = self._embedded(tokens, padding)
        else:
            encoded, spans = self._plain(tokens, padding)
            if padding is not None:
                places = spans.starts[:-1]
                return RaggedEncoding(encoded, places, spans.begins, spans.lengths, tokens.size(1))
            encoded = encoded.view(*tokens.shape, -1)
        return encoder_form(encoded, padding, net_input["src_lengths"])

    def _pack(self) -> None:
        encoder, self._layers = self.encoder, None
        if self.unsupported(encoder, self._backend) is not None:
            return  # moved since, or of another type
        self._layers = self._shared("layers", self._packed_layers)
        self._positions = None
        if encoder.embed_positions is not None:
            self._positions = PositionTable(encoder.embed_positions, torch.float32, "source")

    def _packed_layers(self) -> NativeLayers:
        encoder = self.encoder
        layers = NativeLayers(every_layer(encoder), encoder.layer_norm, torch.float32)
        weight = encoder.embed_tokens.weight.detach().contiguous()
        layers.embed_with(weight, encoder.embed_scale, None, encoder.layernorm_embedding)
        return layers

    def _padding(self, tokens: Tensor) -> Optional[Tensor]:
        """Where a batch (rows, src) is padded; None if nowhere."""
        pad = self.encoder.padding_idx
        table, few = tokens.numpy(), tokens.numel() <= _FEW
        numbers = table.ravel().tolist() if few else [int(table.min()), int(table.max())]
        if self._symbols is not None:
            check_symbols(numbers, self._symbols, "The source", "--srcdict")
        if few and pad not in numbers:
            return None
        found = table == pad
        return torch.from_numpy(found) if few or found.any() else None

    def _plain(self, tokens: Tensor, padding: Optional[Tensor]) -> Tuple[Tensor, Spans]:
        """(symbols, dim) of all that is no ``padding`` (rows, src), and where that is."""
        assert self._layers is not None
        spans = Spans.of(tokens.size(0), tokens.size(1), padding)
        # A batch may be padded beyond the learned positions (--required-seq-len-multiple).
        positions = None if self._positions is None else self._positions.reach(0, spans.longest)
        return self._layers.encode_rows(tokens, spans, positions), spans

    def _embedded(self, tokens: Tensor, padding: Optional[Tensor]) -> Tensor:
        """(rows, src, dim) by fairseq's embedding, anything at ``padding`` (rows, src)."""
        assert self._layers is not None
        mask = None
        if padding is not None:
            mask = torch.zeros(padding.shape, dtype=torch.float32)
            mask.masked_fill_(padding, float("-inf"))
        embedded = self.encoder.forward_embedding(tokens)[0].detach().float()
        return self._layers.encode(embedded.contiguous(), mask)


def unusual_encoder(encoder: nn.Module) -> Optional[str]:
    """What an encoder computes that no engine does, in a few words; None: nothing."""
    if not isinstance(encoder, TransformerEncoderBase):
        return f"{type(encoder).__name__} is not a Transformer encoder"
    for name in ("forward", "forward_scriptable"):
        if getattr(type(encoder), name) is not getattr(TransformerEncoderBase, name):
            return f"{type(encoder).__name__} has its own {name}()"
    layers = every_layer(encoder)
    reasons = (_unusual(layer) for layer in layers)
    unusual = next((reason for reason in reasons if reason is not None), None)
    return unusual if layers else "it has no layers"


def _embeds_plainly(encoder: Any) -> bool:
    """Whether tokens are looked up in a table, scaled, given positions and normalised."""
    for name in ("forward_embedding", "forward_torchscript"):
        if getattr(type(encoder), name) is not getattr(TransformerEncoderBase, name):
            return False
    table = encoder.embed_positions
    known = table is None or isinstance(table, POSITIONS)
    return known and type(encoder.embed_tokens) is nn.Embedding and encoder.quant_noise is None


def _unusual(layer: nn.Module) -> Optional[str]:
    """What a layer has that the kernels do not know, in a few words; None: nothing."""
    if not isinstance(layer, TransformerEncoderLayerBase) or layer.return_fc:
        return f"it has a layer of type {type(layer).__name__}"
    for name in ("forward", "residual_connection"):
        if getattr(type(layer), name) is not getattr(TransformerEncoderLayerBase, name):
            return f"{type(layer).__name__} has its own {name}()"
    attention = layer.self_attn
    reason = unusual_attention(attention, layer.embed_dim)
    return reason or unusual_linear([layer.fc1, layer.fc2], [attention])
