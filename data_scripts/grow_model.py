"""A larger model that computes what a small one does: to train on from, or to measure."""

import argparse
import math
from argparse import Namespace
from typing import Any, Dict, List, Optional

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import DEFAULT_MAX_SOURCE_POSITIONS
from fairseq.modules import SinusoidalPositionalEmbedding
from torch import Tensor

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import load_weights, save_untrained
from specdec_plugin.outputs import check_output, same_file

DESCRIPTION = """\
Write a wider and deeper Transformer with the outputs of a small one (Chen, Goodfellow and Shlens,
Net2Net, 2016). Each unit stands there several times, and what reads it divides by that number.
New layers add nothing to their input; where layers normalise their outputs (fairseq's default),
that holds nearly. Computed positions become learned ones in a wider model. Train on from it
(--finetune-from-model) with --noise, or else equal units stay equal."""

EXAMPLE = """\
example:
  python data_scripts/grow_model.py small.pt --output base.pt --width 4 --layers 6 --noise 0.01"""

#: Products that end a sub-layer: where they are zero, it adds nothing.
LAST = ("self_attn.out_proj", "encoder_attn.out_proj", "fc2")
#: Weights of a row for each symbol.
TABLES = ("embed_tokens.weight", "output_projection.weight")
SIDES = ("encoder", "decoder")
#: What a Transformer of its own has.
_EMBEDDINGS = [f"{side}.embed_tokens.weight" for side in SIDES]
#: The weights of a layer norm.
AFFINE = ("weight", "bias")


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="grow_model.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", metavar="CHECKPOINT", help="a Transformer with shared embeddings")
    add("--width", type=int, default=1, help="times as many units and heads (default 1)")
    add("--layers", type=int, help="of the encoder and of the decoder (default: as many)")
    add("--symbols", type=int, help="of the vocabulary; new ones resemble rare ones (as many)")
    add("--noise", type=float, default=0.0, help="relative to each weight (default: %(default)s)")
    add("--output", required=True, metavar="CHECKPOINT", help="to write")
    return parser


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    check_output(args.output)
    if same_file(args.model, args.output):
        raise PluginError(f"--output {args.output} is the model itself. Name another file.")
    state = load_weights(args.model)
    options = options_of(args.model, state)
    check(args, options, state["model"])
    torch.manual_seed(1)
    weights = {name: value.float() for name, value in state["model"].items()}
    if args.width > 1:
        weights = with_learned_positions(weights, options)
    weights = deeper(weights, args.layers, options) if args.layers else weights
    end = last_norm(weights, options, "decoder")
    grown = {name: wider(name, value, args.width, end) for name, value in weights.items()}
    if args.symbols:
        grown = more_symbols(grown, args.symbols)
    if args.noise:
        # Zeros stay: the embedding of padding, and what ends a new layer.
        grown = {
            name: value + args.noise * spread(value) * value.ne(0) for name, value in grown.items()
        }
    # All tables of embeddings are the same one.
    tables = [name for name in grown if name.endswith(TABLES)]
    grown.update(dict.fromkeys(tables, grown[tables[0]]))
    enlarge(options, args)
    save_untrained(grown, options, args.output)
    print(f"{args.output}: {sum(value.numel() for value in grown.values()) / 1e6:,.1f} M numbers")


def options_of(path: str, state: Dict[str, Any]) -> Namespace:
    """The options of training by their names on the command line."""
    options = state.get("args") or (state.get("cfg") or {}).get("model")
    if not isinstance(options, Namespace):
        raise PluginError(
            f"{path} has no options of a Transformer. Give one of --arch transformer."
        )
    return options


def check(args: argparse.Namespace, options: Namespace, weights: Dict[str, Tensor]) -> None:
    """Refuse models whose larger form would compute something else."""
    if not getattr(options, "share_all_embeddings", False):
        raise PluginError(
            f"{args.model} was trained without --share-all-embeddings. Only models with it grow."
        )
    missing = [name for name in _EMBEDDINGS if name not in weights]
    if missing:
        raise PluginError(
            f"{args.model} has no {missing[0]}, as drafters that share their verifier's. Give a "
            "model of --arch transformer."
        )
    if "decoder.output_projection.bias" in weights:
        raise PluginError(
            f"{args.model} has a bias of its output, as Marian's models have. Give a model of "
            "--arch transformer."
        )
    least = {
        "width": 1,
        "layers": max(getattr(options, f"{side}_layers") for side in SIDES),
        "symbols": len(weights["decoder.embed_tokens.weight"]),
    }
    for name, count in least.items():
        wanted = getattr(args, name)
        if wanted is not None and wanted < count:
            raise PluginError(f"A model can only grow: give --{name} {count} or more.")


def with_learned_positions(weights: Dict[str, Tensor], options: Namespace) -> Dict[str, Tensor]:
    """Turn computed positions, which are others in a wider model, into learned ones."""
    found = {name: value for name, value in weights.items() if not name.endswith("_float_tensor")}
    pad = Dictionary().pad()
    for side, positions in zip(SIDES, ("max_source_positions", "max_target_positions")):
        name = f"{side}.embed_positions.weight"
        if name in found:
            continue
        most = getattr(options, positions, None) or DEFAULT_MAX_SOURCE_POSITIONS
        size = found[f"{side}.embed_tokens.weight"].size(1)
        found[name] = SinusoidalPositionalEmbedding.get_embedding(most + pad + 1, size, pad)
        setattr(options, positions, most)
        setattr(options, f"{side}_learned_pos", True)
    return found


def layers_of(weights: Dict[str, Tensor], side: str) -> int:
    """How many layers the encoder or the decoder has."""
    first = f"{side}.layers."
    return len({name.split(".")[2] for name in weights if name.startswith(first)})


def last_norm(weights: Dict[str, Tensor], options: Namespace, side: str) -> str:
    """The name of the layer norm that ends the encoder or the decoder, with a dot behind it."""
    if getattr(options, f"{side}_normalize_before", False):
        return f"{side}.layer_norm."
    return f"{side}.layers.{layers_of(weights, side) - 1}.final_layer_norm."


def deeper(weights: Dict[str, Tensor], layers: int, options: Namespace) -> Dict[str, Tensor]:
    """Append layers that add nothing, and else are copies of those that there are.

    Where layers normalise their outputs, a new layer's norm has the deviation and the mean that
    its input has on average, and so leaves it nearly as it is.
    """
    found = dict(weights)
    for side in SIDES:
        first = f"{side}.layers."
        own = {name: value for name, value in weights.items() if name.startswith(first)}
        count = layers_of(weights, side)
        kept = {}
        if not getattr(options, f"{side}_normalize_before", False):
            scale, shift = (weights[last_norm(weights, options, side) + part] for part in AFFINE)
            deviation = (scale.square().mean() + shift.var(correction=0)).sqrt()
            kept = dict(zip(AFFINE, (deviation, shift.mean())))
        for layer in range(count, layers):
            copied = f"{first}{layer % count}."
            for name, value in own.items():
                if name.startswith(copied):
                    new = f"{first}{layer}.{name.removeprefix(copied)}"
                    found[new] = nothing_added(name, value, kept)
    return found


def nothing_added(name: str, value: Tensor, kept: Dict[str, Tensor]) -> Tensor:
    """The weights of a new layer that leaves its input as it is.

    Args:
        name, value: of the layer that is copied.
        kept: what its norms multiply by and add; empty where these stay.
    """
    if any(part in name for part in LAST):
        return torch.zeros_like(value)
    if kept and "layer_norm" in name:
        return torch.full_like(value, float(kept[name.split(".")[-1]]))
    return value.clone()


def wider(name: str, value: Tensor, width: int, end: str) -> Tensor:
    """Repeat each unit; see :data:`DESCRIPTION`.

    Args:
        name: of the weights.
        value: (outputs, inputs), (units,), or (symbols or positions, units).
        width: times as many.
        end: how the names of the decoder's last norm begin.
    """
    if width == 1 or name.endswith("version"):
        return value
    if "embed_positions" in name:
        return value.repeat(1, width)
    if name.endswith(TABLES):
        # fairseq multiplies embeddings by the square root of their size.
        return value.repeat(1, width) / math.sqrt(width)
    if name.startswith(end):
        # A symbol's score is a sum of `width` times as many terms.
        return value.repeat(width) / math.sqrt(width)
    return value.repeat(width, width) / width if value.dim() == 2 else value.repeat(width)


def more_symbols(weights: Dict[str, Tensor], symbols: int) -> Dict[str, Tensor]:
    """Add rows like those of symbols in the rarer half of the dictionary, which is sorted."""
    table = weights["decoder.embed_tokens.weight"]
    rare = torch.randint(len(table) // 2, len(table), (symbols - len(table),))
    rows = table[rare] + 0.3 * spread(table[rare])
    grown = torch.cat([table, rows])
    return {name: grown if name.endswith(TABLES) else value for name, value in weights.items()}


def spread(value: Tensor) -> Tensor:
    """Random numbers with the standard deviation of ``value``."""
    return torch.randn_like(value) * (value.std() if value.numel() > 1 else 0.0)


def enlarge(options: Namespace, args: argparse.Namespace) -> None:
    """Write the new shape into the options."""
    for side in SIDES:
        for size in ("embed_dim", "ffn_embed_dim", "attention_heads"):
            name = f"{side}_{size}"
            setattr(options, name, getattr(options, name) * args.width)
        setattr(options, f"{side}_layers", args.layers or getattr(options, f"{side}_layers"))
    for name in ("decoder_input_dim", "decoder_output_dim"):
        setattr(options, name, options.decoder_embed_dim)


if __name__ == "__main__":
    main()
