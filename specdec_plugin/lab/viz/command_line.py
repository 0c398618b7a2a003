"""The command line of ``specdec-ddgviz``: what it takes, and what it refuses."""

import argparse
from typing import Any, Dict, List

from ...errors import PluginError
from ...fairseq_compat.tasks import add_task_options
from ...methods.checks import typed
from ...methods.registry import all_flags, readers
from ..flags import add_flag

EXAMPLE = """examples:
  specdec-ddgviz data-bin -s en -t es --path verifier.pt --subset test --ids 3,17 --output ddg/
  echo 'The file is closed.' | specdec-ddgviz data-bin -s en -t es --path verifier.pt \\
      --input - --sentencepiece spm.model --output ddg/
  specdec-ddgviz data-bin -s en -t es --path verifier.pt --drafter-path drafter.pt \\
      --decoding specdec --top-beta 3 --tolerance 1 --subset test --ids 3 --output drafts/
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
    parser.add_argument("--device", help="for example cuda (default: the CPU)")
    _add_sentences(parser.add_argument_group("sentences (one of --input and --ids)"))
    _add_decoding(parser.add_argument_group("decoding, as in fairseq-generate"))
    return parser


def _add_sentences(group: Any) -> None:
    group.add_argument(
        "--input",
        help="a text file, or - for standard input, a sentence a line; N of its figures counts "
        "lines from 0, as fairseq-interactive does",
    )
    group.add_argument(
        "--sentencepiece",
        metavar="MODEL",
        help="splits the lines of --input; without it they must be subword pieces already, with "
        "spaces between them, as in the data",
    )
    group.add_argument(
        "--ids", type=_numbers, help="numbers of sentences, as after S- in fairseq-generate: 3,17"
    )
    group.add_argument("--subset", default="test", help="the split of --ids (default: %(default)s)")


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
    group.add_argument(
        "--prefix-size",
        type=int,
        default=0,
        help="so many tokens of the references begin the hypotheses of --ids, such as the symbol "
        "of the language; --decoder-langtok needs none (default: %(default)s)",
    )
    group.add_argument("--max-len-a", type=float, default=0, help="(default: %(default)s)")
    group.add_argument("--max-len-b", type=int, default=200, help="(default: %(default)s)")


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
            "numbers of sentences of --subset, such as --ids 3,17."
        )
    if options.prefix_size > 0 and options.ids is None:
        raise PluginError(
            f"--prefix-size {options.prefix_size} takes the first tokens of references, which "
            "--input has not: leave it out, or give --ids."
        )
    if options.sentencepiece is not None and options.input is None:
        raise PluginError(
            f"--sentencepiece {options.sentencepiece} would have no effect: the sentences of a "
            "binarised split are subword pieces already. Leave it out, or give --input."
        )
