"""Weights and shape of Hugging Face's encoder-decoder Transformers, as fairseq stores them."""

import json
import os
from argparse import Namespace
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

import torch
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.modules import SinusoidalPositionalEmbedding
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from torch import Tensor

from ...errors import PluginError
from ...fairseq_compat.checkpoint_errors import explained
from ...models.marian_transformer import MarianTransformerModel
from .symbols import ABSENT, Symbols, read_json

#: The index of the padding symbol in fairseq's dictionaries.
FAIRSEQ_PAD = 1
#: Rows before the first position in fairseq's tables: up to the index of the padding symbol.
OFFSET = FAIRSEQ_PAD + 1
#: What fairseq stores beside the weights of a Transformer's halves.
VERSION = torch.tensor([3.0])
#: Bias of a symbol that the other library does not know. No output has it.
NEVER = -1e4


class Kind(NamedTuple):
    """What distinguishes an architecture, beyond what its config.json tells.

    Attributes:
        normalize_before: each layer normalises its input, and a last normalisation follows.
        layernorm_embedding: embeddings are normalised.
        positions: ``learned``; ``computed`` by fairseq's formula; ``tabulated`` from another.
        defaults: what transformers assumes where config.json tells nothing.
    """

    normalize_before: bool
    layernorm_embedding: bool
    positions: str
    defaults: Mapping[str, Any] = {"activation_function": "gelu", "scale_embedding": False}


#: By ``model_type``. NLLB's is that of M2M-100, and mBART-50's that of mBART.
KINDS = {
    "bart": Kind(False, True, "learned"),
    "m2m_100": Kind(
        True, False, "computed", {"activation_function": "relu", "scale_embedding": True}
    ),
    "marian": Kind(False, False, "tabulated"),
    "mbart": Kind(True, True, "learned"),
}
#: fairseq's options, and their names in config.json.
SIZES = {
    "encoder_layers": "encoder_layers",
    "decoder_layers": "decoder_layers",
    "encoder_embed_dim": "d_model",
    "decoder_embed_dim": "d_model",
    "encoder_ffn_embed_dim": "encoder_ffn_dim",
    "decoder_ffn_embed_dim": "decoder_ffn_dim",
    "encoder_attention_heads": "encoder_attention_heads",
    "decoder_attention_heads": "decoder_attention_heads",
    "max_source_positions": "max_position_embeddings",
    "max_target_positions": "max_position_embeddings",
}
#: Names of activation functions, and fairseq's for the same.
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "swish", "swish": "swish"}
#: Where a table of embeddings is stored, the first choice first: tied tables are stored once.
TABLES = {
    "encoder.embed_tokens": ("model.encoder.embed_tokens", "model.shared", "lm_head"),
    "decoder.embed_tokens": ("model.decoder.embed_tokens", "model.shared", "lm_head"),
    "decoder.output_projection": ("lm_head", "model.shared", "model.decoder.embed_tokens"),
}
#: Weights that are not copied under their own names.
ELSEWHERE = {f"{name}.weight" for names in TABLES.values() for name in names}
POSITIONS = ("encoder.embed_positions.weight", "decoder.embed_positions.weight")


def read_kind(folder: str) -> Tuple[Dict[str, Any], Kind]:
    """The contents of config.json, and the kind of its model.

    Raises:
        PluginError: there is no such file, or the model is of another kind.
    """
    if not os.path.isdir(folder):
        raise PluginError(f"{folder} is not a folder. Name the folder that has config.json.")
    config = read_json(folder, "config.json")
    if not config:
        raise PluginError(f"{folder} has no config.json. Name the folder of a downloaded model.")
    found = config.get("model_type")
    if found not in KINDS:
        raise PluginError(
            f"{folder} holds a model of type {found}. Give one of {', '.join(KINDS)} (NLLB is "
            "m2m_100, and mBART-50 is mbart)."
        )
    absent = sorted({*SIZES.values()} - {*config})
    if absent:
        raise PluginError(
            f"config.json in {folder} has no {absent[0]}. Copy it again from the model's folder."
        )
    return config, KINDS[found]


def read_tensors(folder: str) -> Dict[str, Tensor]:
    """All weights by their names, in float32.

    Raises:
        PluginError: there are none, or they cannot be read.
    """
    for name, read in (("model.safetensors", _read_safe), ("pytorch_model.bin", _read_pickled)):
        if os.path.isfile(os.path.join(folder, name)):
            return read(os.path.join(folder, name))
        if os.path.isfile(os.path.join(folder, f"{name}.index.json")):
            shards = set(read_json(folder, f"{name}.index.json").get("weight_map", {}).values())
            parts = [read(os.path.join(folder, shard)) for shard in sorted(shards)]
            return {name: tensor for part in parts for name, tensor in part.items()}
    raise PluginError(
        f"{folder} has no weights: neither model.safetensors nor pytorch_model.bin. Copy one of "
        "them beside config.json."
    )


def _read_safe(path: str) -> Dict[str, Tensor]:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError:
        raise PluginError(
            f"{path} is read with the package safetensors, which is not installed. Run "
            "pip install 'specdec-plugin[import]'."
        ) from None
    try:
        return _floating(load_file(path))
    except (OSError, SafetensorError) as error:
        raise PluginError(f"{path} cannot be read ({error}). Copy it again.") from None


def _read_pickled(path: str) -> Dict[str, Tensor]:
    with explained(path, maker="transformers"):
        return _floating(torch.load(path, map_location="cpu", weights_only=True))


def _floating(tensors: Dict[str, Tensor]) -> Dict[str, Tensor]:
    return {name: tensor.float() for name, tensor in tensors.items()}


def start_id(folder: str, config: Dict[str, Any], target: Symbols) -> int:
    """The id of the symbol that the decoder is fed first.

    Only Marian's may differ from the end of the sentence. mBART-25 starts with a language and
    ends sources with one, which a plain translation task does not.
    """
    end = target.ids[target.dictionary.eos()]
    first = read_json(folder, "generation_config.json").get("decoder_start_token_id")
    first = config.get("decoder_start_token_id") if first is None else first
    if first == end or (config["model_type"] == "marian" and first is not None):
        return int(first)
    raise PluginError(
        f"The decoder in {folder} starts with the symbol {first}, not with the end of the "
        f"sentence ({end}). Give a model that starts with it, such as mBART-50 for mBART-25."
    )


class Checkpoint(NamedTuple):
    """What fairseq stores: the options of training, and the weights."""

    arguments: Namespace
    state: Dict[str, Tensor]


def convert(
    config: Dict[str, Any],
    tensors: Dict[str, Tensor],
    source: Symbols,
    target: Symbols,
    start: int,
) -> Checkpoint:
    """Name and arrange weights as fairseq does.

    Args:
        config: the contents of config.json.
        tensors: the weights by their names in the other library.
        source: symbols of the encoder.
        target: symbols of the decoder.
        start: the id of the symbol that the decoder is fed first.

    Raises:
        PluginError: weights are missing, are too many, or have other shapes than config.json has.
    """
    kind = KINDS[config["model_type"]]
    state = {
        name.removeprefix("model."): tensor
        for name, tensor in tensors.items()
        if name.startswith("model.") and name not in ELSEWHERE and "embed_positions" not in name
    }
    state.update(_tables(tensors, source, target, start))
    state.update(_positions(config, kind, tensors))
    arguments = _arguments(config, kind, state)
    bias = _bias(tensors, target)
    if bias.any() or arguments.activation_fn == "swish":
        arguments.arch = arguments._name = "marian_transformer"
        state["decoder.output_projection.bias"] = bias
    _check(state, arguments, source, target)
    return Checkpoint(arguments, state)


def _tables(
    tensors: Dict[str, Tensor], source: Symbols, target: Symbols, start: int
) -> Dict[str, Tensor]:
    """The three tables of embeddings, the same object where they are equal.

    fairseq's decoder is fed the end of the sentence first, and never again. So where another
    symbol comes first, its row takes the place of that of the end, in the decoder's input only.
    """
    ids = {"encoder.embed_tokens": source.ids}
    found = {name: _table(tensors, name, ids.get(name, target.ids)) for name in TABLES}
    encoder, decoder, output = found.values()
    end = target.dictionary.eos()
    if start != target.ids[end]:
        decoder = decoder.clone()
        decoder[end] = decoder[target.ids.index(start)]
    if torch.equal(decoder, output):
        output = decoder
    if torch.equal(encoder, decoder):
        encoder = decoder
        output = decoder if torch.equal(output, decoder) else output
    return {f"{name}.weight": table for name, table in zip(TABLES, (encoder, decoder, output))}


def table_size(config: Dict[str, Any], name: str, tensors: Dict[str, Tensor]) -> int:
    """The symbols of a vocabulary, as config.json names their number.

    Raises:
        PluginError: no table of embeddings has so many rows.
    """
    size = config.get(name, 0)
    if all(tensors[each].size(0) < size for each in ELSEWHERE if each in tensors):
        raise PluginError(
            f"The weights have no table of {size} symbols, unlike config.json ({name}). Copy both "
            "from the same model, one that generates text."
        )
    return int(size)


def _table(tensors: Dict[str, Tensor], name: str, ids: List[int]) -> Tensor:
    stored = [f"{origin}.weight" for origin in TABLES[name] if f"{origin}.weight" in tensors]
    if not stored or tensors[stored[0]].size(0) != max(ids) + 1:
        raise PluginError(
            f"The weights have no table of {max(ids) + 1} symbols for {name}, unlike config.json. "
            "Copy both from the same model, one that generates text."
        )
    return arranged(tensors[stored[0]], ids)


def arranged(table: Tensor, ids: List[int]) -> Tensor:
    """(symbols, …) the rows of ``table`` in a dictionary's order; zeros for absent symbols."""
    if ids == list(range(len(table))):
        return table
    rows = torch.tensor(ids)
    found = table[rows.clamp(min=0)]
    found[rows == ABSENT] = 0
    return found


def _positions(config: Dict[str, Any], kind: Kind, tensors: Dict[str, Tensor]) -> Dict[str, Tensor]:
    """Tables of positions, for both sides, unless fairseq computes the same ones."""
    if kind.positions == "computed":
        padding = config.get("pad_token_id", FAIRSEQ_PAD)
        if padding == FAIRSEQ_PAD:
            return {}
        return dict.fromkeys(POSITIONS, shifted(config, padding))
    if kind.positions == "tabulated":
        table = sinusoids(config["max_position_embeddings"], config["d_model"])
        return dict.fromkeys(POSITIONS, table)
    return {name: tensors[f"model.{name}"] for name in POSITIONS if f"model.{name}" in tensors}


def sinusoids(positions: int, dim: int) -> Tensor:
    """(OFFSET + positions, dim) Marian's positions; rows before the first are zero.

    The angles are those of Vaswani et al. (2017, section 3.5), all sines before all cosines.
    fairseq's divide the exponent by dim/2 - 1 instead of dim/2, so that it cannot compute these.
    """
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    angles = torch.arange(positions, dtype=torch.float64)[:, None] / 10000**exponents
    waves = torch.cat([angles.sin(), angles.cos()[:, : dim // 2]], dim=1)
    return torch.cat([waves.new_zeros(OFFSET, dim), waves]).float()


def shifted(config: Dict[str, Any], padding: int) -> Tensor:
    """(OFFSET + positions, dim) M2M-100's positions, which count from the id behind the padding's.

    So do fairseq's, by the same formula, but its padding always has the same index.
    """
    positions, dim = config["max_position_embeddings"], config["d_model"]
    table = SinusoidalPositionalEmbedding.get_embedding(padding + 1 + positions, dim)
    return torch.cat([table.new_zeros(OFFSET, dim), table[padding + 1 :]])


def _bias(tensors: Dict[str, Tensor], target: Symbols) -> Tensor:
    """(symbols,) the bias of the output projection."""
    none = torch.zeros(max(target.ids) + 1)
    given = tensors.get("final_logits_bias", none).flatten()
    if given.shape != none.shape:
        raise PluginError(
            f"final_logits_bias is of {len(given)} symbols, but the model has {len(none)}. Copy "
            "the weights again."
        )
    bias = arranged(given, target.ids).clone()
    bias[torch.tensor(target.ids) == ABSENT] = NEVER
    return bias


def _arguments(config: Dict[str, Any], kind: Kind, state: Dict[str, Tensor]) -> Namespace:
    """The options with which fairseq-train would build the model."""
    config = {**kind.defaults, **config}
    activation = config["activation_function"]
    if activation not in ACTIVATIONS:
        raise PluginError(
            f"fairseq has no activation function {activation}. Give a model with one of "
            f"{', '.join(ACTIVATIONS)}."
        )
    encoder, decoder, output = (state[f"{name}.weight"] for name in TABLES)
    arguments = Namespace(
        task="specdec_translation",
        arch="transformer",
        _name="transformer",
        activation_fn=ACTIVATIONS[activation],
        share_decoder_input_output_embed=decoder is output,
        share_all_embeddings=encoder is decoder is output,
        no_scale_embedding=not config["scale_embedding"],
        layernorm_embedding=kind.layernorm_embedding,
        **{option: config[name] for option, name in SIZES.items()},
    )
    for side in ("encoder", "decoder"):
        setattr(arguments, f"{side}_normalize_before", kind.normalize_before)
        stored = kind.positions != "computed" or POSITIONS[0] in state
        setattr(arguments, f"{side}_learned_pos", stored)
    base_architecture(arguments)
    return arguments


def _check_layers(state: Dict[str, Tensor], arguments: Namespace) -> None:
    """Refuse layers that have no weights, before fairseq builds as many as config.json tells."""
    for side in ("encoder", "decoder"):
        first = f"{side}.layers."
        found = len({name.split(".")[2] for name in state if name.startswith(first)})
        if getattr(arguments, f"{side}_layers") > found:
            raise PluginError(
                f"The weights lack {first}{found}.*, unlike config.json. Copy both again."
            )


def _check(
    state: Dict[str, Tensor], arguments: Namespace, source: Symbols, target: Symbols
) -> None:
    """Refuse weights that do not fit the model; add what fairseq itself stores beside them."""
    _check_layers(state, arguments)
    model = MarianTransformerModel if arguments.arch == "marian_transformer" else TransformerModel
    task = TranslationTask(TranslationConfig(), source.dictionary, target.dictionary)
    with torch.device("meta"):  # shapes without numbers
        wanted = model.build_model(arguments, task).state_dict()
    state.update({name: VERSION for name in wanted if name.endswith(".version")})
    for name in sorted({*wanted} ^ {*state}):
        cause = "lack" if name in wanted else "have"
        raise PluginError(f"The weights {cause} {name}, unlike config.json. Copy both again.")
    for name, value in wanted.items():
        if value.shape != state[name].shape:
            raise PluginError(
                f"{name} has the shape {json.dumps(list(state[name].shape))}, but config.json "
                f"means {json.dumps(list(value.shape))}. Copy both from the same model."
            )
