"""A fairseq Transformer encoder run by the native kernels."""

from typing import Any, Callable, Dict, List, Optional

import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor, nn

from .decoder_layer import strange_attention, strange_product
from .native_layers import NativeLayers
from .weights import WeightWatch

#: Takes fairseq's ``net_input`` and gives what fairseq's encoder returns.
Encoder = Callable[[Dict[str, Any]], Any]


def build_encoder(model: Any) -> Encoder:
    """The fastest way to run the encoder of a fairseq model in evaluation mode."""
    encoder = model.encoder
    if FastEncoder.supports(encoder):
        return FastEncoder(encoder)
    run: Encoder = encoder.forward_torchscript
    return run


class FastEncoder:
    """Embeds with fairseq's own module and runs the layers in one call.

    Args:
        encoder: fairseq's encoder; see :meth:`supports`.
    """

    def __init__(self, encoder: TransformerEncoderBase) -> None:
        self.encoder = encoder
        self._watch = WeightWatch(encoder)
        self._layers: Optional[NativeLayers] = None

    @staticmethod
    def supports(encoder: nn.Module) -> bool:
        """Whether the kernels give what this encoder gives."""
        if not isinstance(encoder, TransformerEncoderBase):
            return False
        own = [getattr(type(encoder), name) for name in ("forward", "forward_scriptable")]
        plain = [TransformerEncoderBase.forward, TransformerEncoderBase.forward_scriptable]
        weight = encoder.embed_tokens.weight
        layers = _layers(encoder)
        return (
            own == plain
            and len(layers) > 0
            and all(map(_plain, layers))
            and weight.dtype == torch.float32
            and NativeLayers.supports(layers, weight.device, weight.dtype, weight.dtype)
        )

    def __call__(self, net_input: Dict[str, Any]) -> Dict[str, List[Tensor]]:
        """Encode a batch.

        Args:
            net_input: fairseq's ``src_tokens`` (rows, src) and ``src_lengths`` (rows,).

        Returns:
            as fairseq: ``encoder_out`` [(src, rows, dim)], with anything at padded
            places, and ``encoder_padding_mask`` [(rows, src)].
        """
        if self.encoder.embed_tokens.weight.device.type != "cpu":
            return self.encoder.forward_torchscript(net_input)  # moved since
        if self._watch.changed() or self._layers is None:
            self._layers = NativeLayers(
                _layers(self.encoder), self.encoder.layer_norm, torch.float32
            )
        tokens = net_input["src_tokens"]
        padding = tokens.eq(self.encoder.padding_idx)
        embedded = self.encoder.forward_embedding(tokens)[0].detach().float()
        mask = None
        if padding.any():
            mask = torch.zeros(padding.shape).masked_fill_(padding, float("-inf"))
        encoded = self._layers.encode(embedded.contiguous(), mask)
        return {
            "encoder_out": [encoded.transpose(0, 1)],
            "encoder_padding_mask": [padding],
            "encoder_embedding": [],
            "encoder_states": [],
            "fc_results": [],
            "src_tokens": [],
            "src_lengths": [net_input["src_lengths"].view(-1, 1).int()],
        }


def _layers(encoder: TransformerEncoderBase) -> List[Any]:
    """All layers; iterating the module list would drop some at random under LayerDrop."""
    return [encoder.layers[index] for index in range(len(encoder.layers))]


def _plain(layer: nn.Module) -> bool:
    """Whether a layer is fairseq's own, with nothing that the kernels do not know."""
    if not isinstance(layer, TransformerEncoderLayerBase) or layer.return_fc:
        return False
    for name in ("forward", "residual_connection"):
        if getattr(type(layer), name) is not getattr(TransformerEncoderLayerBase, name):
            return False
    attention = layer.self_attn
    return (
        strange_attention(attention, layer.embed_dim) is None
        and strange_product([layer.fc1, layer.fc2], [attention]) is None
    )
