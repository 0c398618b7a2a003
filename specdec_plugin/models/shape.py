"""The shape of a Transformer as options of ``fairseq-train``."""

from argparse import Namespace
from typing import Any, Dict

from fairseq.models.speech_to_text.s2t_transformer import S2TTransformerModel
from fairseq.models.transformer import TransformerModelBase
from omegaconf import OmegaConf

from ..errors import PluginError

#: Options with a value.
SIZES = (
    "encoder_layers", "decoder_layers", "encoder_embed_dim", "decoder_embed_dim",
    "encoder_ffn_embed_dim", "decoder_ffn_embed_dim", "encoder_attention_heads",
    "decoder_attention_heads", "activation_fn", "max_source_positions", "max_target_positions",
)  # fmt: skip
#: Options without a value.
SWITCHES = (
    "share_all_embeddings", "share_decoder_input_output_embed", "encoder_normalize_before",
    "decoder_normalize_before", "encoder_learned_pos", "decoder_learned_pos",
    "layernorm_embedding", "no_scale_embedding", "no_token_positional_embeddings",
    "no_decoder_final_norm",
)  # fmt: skip


def arguments_of(path: str, model: Any, purpose: str) -> Dict[str, Any]:
    """The options of a trained Transformer by their command-line names (``encoder_layers``, …).

    Args:
        path: the checkpoint of ``model``, for the message.
        model: the model.
        purpose: the end of the message: what the model is needed for, and the remedy.

    Raises:
        PluginError: the model is not a Transformer.
    """
    if isinstance(model, S2TTransformerModel):
        shape = model.decoder.args  # of the whole model
    elif isinstance(model, TransformerModelBase):
        shape = model.args if hasattr(model, "args") else model.cfg
    else:
        raise PluginError(f"{path} is a {type(model).__name__}, and {purpose}.")
    values: Any = OmegaConf.to_container(shape) if OmegaConf.is_config(shape) else vars(shape)
    flat: Dict[str, Any] = {}
    for name, value in dict(values).items():
        nested = value if isinstance(value, dict) else getattr(value, "__dict__", None)
        if name in ("encoder", "decoder", "quant_noise") and nested is not None:
            flat.update({f"{name}_{key}": item for key, item in nested.items()})
        elif not name.startswith("_"):  # fairseq leaves OmegaConf's own there
            flat[name] = value
    return flat


def take_shape(arguments: Namespace, given: Dict[str, Any]) -> None:
    """Give ``arguments`` the shape of a model with the options ``given``."""
    for name in (*SIZES, *SWITCHES, "decoder_input_dim", "decoder_output_dim"):
        if given.get(name) is not None:
            setattr(arguments, name, given[name])
