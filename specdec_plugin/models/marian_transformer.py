"""fairseq's Transformer with what Marian's has besides: a bias of the output, and swish.

No option of fairseq asks for the bias. Its ``--activation-fn swish`` is the class of a module, with
which layers cannot compute. ``specdec-import`` writes checkpoints of this architecture where a
model needs one of them.
"""

from argparse import Namespace
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel, base_architecture
from torch import nn

from ..errors import PluginError


@register_model("marian_transformer")
class MarianTransformerModel(TransformerModel):
    """A Transformer with ``decoder.output_projection.bias``, (vocabulary,)."""

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: Any) -> Any:
        return _mended(super().build_encoder(args, src_dict, embed_tokens))

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: Any) -> Any:
        decoder = _mended(super().build_decoder(args, tgt_dict, embed_tokens))
        if decoder.adaptive_softmax is not None:
            raise PluginError(
                "A Marian Transformer cannot have an adaptive softmax, because its projection has "
                "a bias: leave --adaptive-softmax-cutoff out."
            )
        decoder.output_projection.bias = nn.Parameter(torch.zeros(len(tgt_dict)))
        return decoder


def _mended(half: Any) -> Any:
    """An encoder or decoder whose layers call swish as a function."""
    for layer in half.layers:
        if layer.activation_fn is nn.SiLU:
            layer.activation_fn = F.silu
    return half


@register_model_architecture("marian_transformer", "marian_transformer")
def marian_transformer(args: Namespace) -> None:
    """The defaults of fairseq's Transformer."""
    base_architecture(args)
