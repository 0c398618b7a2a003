"""The command line of ``specdec-check``: what it takes, and what it refuses."""

import argparse
import math
from typing import Any, List, Sequence

from ...errors import PluginError
from ...fairseq_compat.options import flag_of
from ...methods.registry import BENCH_BEAM, all_flags
from ..bench.command_line import (
    add_generation,
    add_models,
    check_clusters,
    check_samples,
    names_among,
)
from ..bench.methods import HEADS, OF_THE_NAME, beam_of, entries
from ..options import add_device, add_flag, add_sentencepiece, add_split, check_sentencepiece

DESCRIPTION = """\
Show on your model and your text that methods are lossless: that each finds fairseq's tokens.
fairseq decodes the same batches beside them. For each hypothesis that differs, both programs score
both tokens at the first position that differs. Where the two log-probabilities are equal to
--tie, it is listed as a tie; else the exit status is 1. An interrupted check resumes."""

EXAMPLE = """examples:
  specdec-check data-bin -s en -t es --path model.pt --sentences 400
  specdec-check data-bin -s en -t es --path model.pt --input test.en --sentencepiece spm.model \\
      --methods "greedy,specdec self,beam" --beam 4 --batch-size 1 --output checked
  specdec-check data-bin -s en -t es --path model.pt --shards 8 --shard 3 --output checked
"""
#: What is checked by default: exact, and without another file than the model.
METHODS = (
    "greedy", "greedy certified", "specdec self", "hybrid-jacobi", "gs-jacobi", "input-guided",
    "beam", "specdec beam",
)  # fmt: skip
#: Samples are compared with those of the first of them, and drawn from all symbols.
_NOT_SAMPLED = ("greedy", "greedy certified")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-check",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_models(parser)
    add_device(parser)
    _add_text(parser.add_argument_group("text"))
    _add_check(parser.add_argument_group("check"))
    _add_decoding(parser.add_argument_group("decoding, as in fairseq-generate"))
    return parser


def _add_text(group: Any) -> None:
    add_split(group, "of the data")
    group.add_argument(
        "--input",
        metavar="FILE",
        help="instead of a split, the lines of a text; - for standard input",
    )
    add_sentencepiece(group)
    group.add_argument(
        "--sentences",
        type=int,
        metavar="N",
        help="check only about so many: full batches that are spread over the text, such as 56 of "
        "60 sentences with 8 in a batch",
    )
    group.add_argument(
        "--batch-size",
        type=int,
        default=8,
        metavar="N",
        help="sentences a batch, for all programs (default: %(default)s)",
    )


def _add_check(group: Any) -> None:
    group.add_argument(
        "--methods",
        help=f"comma-separated, of: {', '.join(entries())} (default: {','.join(METHODS)}; also "
        "specdec with --drafter-path, and blockwise with --heads-path)",
    )
    group.add_argument(
        "--tie",
        type=float,
        default=1e-4,
        metavar="T",
        help="log-probabilities, or scores of whole hypotheses with --beam, that differ by T or "
        "less may be in either order (default: %(default)s)",
    )
    group.add_argument(
        "--output",
        default="specdec-check",
        metavar="FOLDER",
        help="results, and fairseq's output for later checks of the same text; a check that was "
        "interrupted resumes there (default: %(default)s)",
    )
    group.add_argument(
        "--shards",
        type=int,
        default=1,
        metavar="N",
        help="parts of the text (default: %(default)s)",
    )
    group.add_argument(
        "--shard",
        type=int,
        metavar="I",
        help="check this part alone, 0 to N - 1. Without it, all parts are checked that are not "
        "in the folder yet, and reported together",
    )


def _add_decoding(group: Any) -> None:
    group.add_argument(
        "--beam",
        type=int,
        default=BENCH_BEAM,
        metavar="B",
        help="of methods that search with several (default: %(default)s)",
    )
    group.add_argument("--seed", type=int, default=1, help="of samples (default: %(default)s)")
    add_generation(group)
    for name, declared in all_flags().items():
        if name in OF_THE_NAME:
            continue
        # Where drafts are measured first, few would be checked.
        default = 0 if name == "draft_rows" else declared.default
        note = "; here they are always made" if name == "draft_rows" else ""
        add_flag(group, declared, default, note, default=default)


def method_names(options: argparse.Namespace) -> List[str]:
    """What ``--methods`` names, or what is checked without it.

    Raises:
        PluginError: a name does not exist, or comes twice.
    """
    if options.methods is not None:
        return names_among(options.methods, [*entries()])
    names = list(METHODS)
    if options.drafter_path is not None:
        names.append("specdec")
    if getattr(options, HEADS) is not None:
        names.append("blockwise")
    if options.sampling:
        return [name for name in names if name not in _NOT_SAMPLED and beam_of(name) == 1]
    return names


def check_options(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Refuse what cannot be checked.

    Raises:
        PluginError: it names the option and the cure.
    """
    for name in ("batch_size", "sentences", "shards", "beam"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise PluginError(f"{flag_of(name)} {value}: give at least 1.")
    if not 0 <= options.tie < math.inf:
        raise PluginError(f"--tie {options.tie}: give 0 or more, such as 1e-4.")
    if options.shard is not None and not 0 <= options.shard < options.shards:
        raise PluginError(
            f"--shard {options.shard} is none of --shards {options.shards}: give 0 to "
            f"{options.shards - 1}, or leave it out for all."
        )
    check_sentencepiece(options)
    if options.input == "-" and options.shards > 1:
        raise PluginError("--input - is read once: name a file, so that each shard can read it.")
    if options.sampling and "greedy" in names:
        raise PluginError(
            "--sampling compares methods with the samples of greedy: leave greedy out of --methods."
        )
    check_clusters(options, names)
    check_samples(options, names)
