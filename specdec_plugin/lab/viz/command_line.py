"""The command line of ``specdec-ddgviz``: what it takes, and what it refuses."""

import argparse
from typing import Any, Dict, List

from ...errors import PluginError
from ...fairseq_compat.tasks import add_task_options
from ...methods.checks import typed
from ...methods.registry import all_flags, readers
from ..options import (
    add_device,
    add_flag,
    add_lengths,
    add_prefix_size,
    add_sentencepiece,
    add_split,
    check_sentencepiece,
)

EXAMPLE = """examples:
  specdec-ddgviz data-bin -s en -t es --path verifier.pt --gen-subset test --ids 3,17 --output ddg/
  echo 'The file is closed.' | specdec-ddgviz data-bin -s en -t es --path verifier.pt \\
      --input - --sentencepiece spm.model --output ddg/
  specdec-ddgviz data-bin -s en -t es --path verifier.pt --drafter-path drafter.pt \\
      --decoding specdec --top-beta 3 --tolerance 1 --gen-subset test --ids 3 --output drafts/
"""


def known_flags() -> Dict[str, Any]:
    """The flags of speculative decoding, by name; Jacobi iterations read those of greedy."""
    return {name: each for name, each in all_flags().items() if "specdec" in readers()[name]}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-ddgviz",
        description="Draw which tokens of a translation can be decoded in parallel: the matrix of "
        "Jacobi iterations and tokens with their probabilities, and the decoding dependency "
        "graph; or what became of each draft of speculative decoding. Writes sentence-N.png, "
        "sentence-N.svg and index.html, a page on which you step through the iterations.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", help="binarised data folder, or one with the dictionaries")
    add_task_options(parser)
    parser.add_argument("--path", required=True, help="model (several: a.pt:b.pt)")
    parser.add_argument("--output", required=True, help="folder for the figures and the page")
    add_device(parser)
    _add_sentences(parser.add_argument_group("sentences (one of --input and --ids)"))
    _add_decoding(parser.add_argument_group("decoding, as in fairseq-generate"))
    return parser


def _add_sentences(group: Any) -> None:
    group.add_argument(
        "--input",
        help="a text file, or - for standard input, a sentence a line; N of its figures counts "
        "lines from 0, as fairseq-interactive does",
    )
    add_sentencepiece(group)
    group.add_argument(
        "--ids", type=_numbers, help="numbers of sentences, as after S- in fairseq-generate: 3,17"
    )
    add_split(group, "the split of --ids")


def _numbers(text: str) -> List[int]:
    """Numbers joined by commas, in their order, each once."""
    return list(dict.fromkeys(int(each) for each in text.split(",")))


_numbers.__name__ = "list of numbers"


def _add_decoding(group: Any) -> None:
    group.add_argument(
        "--decoding",
        choices=["jacobi", "specdec"],
        default="jacobi",
        help="parallel Jacobi iterations of the whole sentence, or drafts and what the model "
        "accepts of them (default: %(default)s)",
    )
    for declared in known_flags().values():
        add_flag(group, declared, declared.default, default=None)
    add_prefix_size(group, " of --ids")
    add_lengths(group)


def decoding_flags(options: argparse.Namespace) -> Dict[str, Any]:
    """The decoding flags that were given.

    Raises:
        PluginError: one would have no effect.
    """
    given = {name: getattr(options, name) for name in known_flags()}
    given = {name: value for name, value in given.items() if value is not None}
    for name, value in given.items():
        # Jacobi iterations are the verifier's alone, as greedy decoding is.
        if options.decoding == "jacobi" and "greedy" not in readers()[name]:
            raise PluginError(
                f"{typed(name, value)} would have no effect with --decoding jacobi: "
                "leave it out, or add --decoding specdec."
            )
    return given


def check_options(options: argparse.Namespace) -> None:
    """Refuse sentences that are named twice, or not at all; PluginError names the cure."""
    if (options.input is None) == (options.ids is None):
        raise PluginError(
            "Which sentences? Give either --input FILE (or - for standard input), or --ids with "
            "numbers of sentences of --gen-subset, such as --ids 3,17."
        )
    if options.prefix_size > 0 and options.ids is None:
        raise PluginError(
            f"--prefix-size {options.prefix_size} takes the first tokens of references, which "
            "--input has not: leave it out, or give --ids."
        )
    check_sentencepiece(options)
