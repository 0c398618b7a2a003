"""``specdec-init-drafter``: a drafter's first checkpoint, warm-started from its verifier."""

import argparse
from argparse import Namespace
from typing import Any, Dict, List, Optional, Sequence

from fairseq.dataclass.utils import gen_parser_from_dataclass
from torch import Tensor

from ..errors import PluginError
from ..fairseq_compat.checkpoints import save_untrained
from ..fairseq_compat.interrupts import console_program
from ..fairseq_compat.options import flag_of
from ..fairseq_compat.pairing import load_model
from ..fairseq_compat.tasks import add_task_options, given_task_options, set_up_task
from ..models.block_nat import BlockNATConfig, BlockNATModel, block_nat
from ..models.frozen import FrozenEncoder
from ..models.roles import check_whole_model
from ..models.shape import SIZES, SWITCHES, arguments_of
from ..outputs import check_output

EXAMPLE = """example:
  specdec-init-drafter data-bin --source-lang en --target-lang es \\
      --verifier checkpoints/verifier.pt --output checkpoints/drafter.init.pt \\
      --decoder-layers 2 --block-size 10 --prefix-attention causal --share-encoder
  fairseq-train data-bin --user-dir specdec_plugin --task block_nat_translation \\
      --finetune-from-model checkpoints/drafter.init.pt ...
  specdec-init-drafter data-bin -s en -t es --task specdec_translation_multi_simple_epoch \\
      --lang-pairs en-es,es-en --encoder-langtok src --decoder-langtok \\
      --verifier multilingual.pt --output drafter.init.pt --share-encoder
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-init-drafter",
        description="Write a drafter whose encoder, embeddings and decoder layers start as its "
        "verifier's, and print the options with which fairseq-train continues from there.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", help="binarised data folder (for its dictionaries)")
    add_task_options(parser)
    parser.add_argument("--verifier", required=True, help="the verifier's checkpoint")
    parser.add_argument(
        "--output",
        required=True,
        help="the drafter's checkpoint, which replaces a file of this name; its folder is made "
        "where there is none",
    )
    parser.add_argument("--decoder-layers", type=int, help="default: as many as the verifier")
    gen_parser_from_dataclass(parser, BlockNATConfig())
    return parser


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    check_output(options.output)
    task = set_up_task(options.task, options.data, given_task_options(options))
    verifier = load_model(options.verifier, task.source_dictionary, task.target_dictionary)
    check_whole_model(verifier, f"--verifier {options.verifier}")
    arguments = drafter_arguments(verifier, options)
    drafter = BlockNATModel.build_model(arguments, task)
    if isinstance(drafter.encoder, FrozenEncoder):
        drafter.attach_encoder(verifier.encoder)
    copied = warm_start(drafter, verifier)
    save_untrained(drafter.state_dict(), arguments, options.output)
    fresh = sorted(set(drafter.state_dict()) - set(copied))
    print(f"{options.output}: {len(copied)} weights of the verifier; new: {', '.join(fresh)}")
    print(training_flags(arguments))


def drafter_arguments(verifier: Any, options: Namespace) -> Namespace:
    """The verifier's shape with the drafter's options, as fairseq-train would store them."""
    purpose = (
        "a drafter starts from a Transformer: train one without specdec-init-drafter, with --arch "
        "block_nat"
    )
    arguments = Namespace(**arguments_of(options.verifier, verifier, purpose))
    arguments.arch = arguments._name = "block_nat"
    for name in ("block_size", "prefix_attention", "share_encoder", "chain_units"):
        setattr(arguments, name, getattr(options, name))
    if options.decoder_layers is not None:
        if not 1 <= options.decoder_layers <= arguments.decoder_layers:
            raise PluginError(
                f"--decoder-layers {options.decoder_layers}: the verifier has "
                f"{arguments.decoder_layers} to start from. Give 1 to {arguments.decoder_layers}."
            )
        arguments.decoder_layers = options.decoder_layers
    block_nat(arguments)
    return arguments


def warm_start(drafter: BlockNATModel, verifier: Any) -> List[str]:
    """Copy the verifier's weights into the drafter where names and shapes agree.

    With fewer decoder layers than the verifier, the drafter takes layers at even
    distances, the first and the last among them: they read embeddings and feed
    the output projection.

    Returns:
        the names of the drafter's weights that were copied.
    """
    have, given = drafter.state_dict(), verifier.state_dict()
    mine, theirs = len(drafter.decoder.layers), len(verifier.decoder.layers)
    copied: Dict[str, Tensor] = {}
    for name, value in have.items():
        origin = given.get(_origin(name, mine, theirs))
        if origin is not None and origin.shape == value.shape:
            copied[name] = origin
    drafter.load_state_dict({**have, **copied})
    return list(copied)


def _origin(name: str, mine: int, theirs: int) -> str:
    prefix = "decoder.layers."
    if not name.startswith(prefix):
        return name
    layer, rest = name[len(prefix) :].split(".", 1)
    chosen = round(int(layer) * (theirs - 1) / (mine - 1)) if mine > 1 else theirs - 1
    return f"{prefix}{chosen}.{rest}"


def training_flags(arguments: Namespace) -> str:
    """The flags of fairseq-train that build this drafter again."""
    values = vars(arguments)
    sized = [*SIZES, "block_size", "prefix_attention"]
    switches = [*SWITCHES, "share_encoder"]
    words = [f"{flag_of(name)} {values[name]}" for name in sized if values.get(name) is not None]
    if values["decoder_output_dim"] != values["decoder_embed_dim"]:
        words.append(f"--decoder-output-dim {values['decoder_output_dim']}")
    if values["chain_units"] != 0:
        words.append(f"--chain-units {values['chain_units']}")
    words += [flag_of(name) for name in switches if values.get(name)]
    return "--arch block_nat " + " ".join(words)
