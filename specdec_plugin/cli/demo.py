"""``python -m specdec_plugin.demo``: translate English text with the shipped models, five ways."""

import argparse
import os
import statistics
from typing import Any, Dict, List, Optional, Sequence

import sentencepiece
import torch

from ..errors import PluginError
from ..lab.bench.methods import Method, Session, build_methods, open_session
from ..lab.bench.timing import Timing, batches_of, run_interleaved
from ..methods.options import DRAFTER_DTYPES
from ..textfiles import read_lines

METHODS = ("fairseq beam 5", "fairseq beam 1", "greedy", "specdec", "specdec self")

SENTENCES = """\
The function returns a list of all the words in the file, sorted by length.
If the optional argument is given, the search starts at that position in the string.
Each thread keeps its own copy of the variable, so that no lock is needed.
An exception is raised when the file does not exist or cannot be opened for reading.
The default encoding depends on the platform; use the second argument to choose another one.
This module provides a simple way to measure how long small pieces of code take to run.
Returns True if both objects have the same type and the same value, and False otherwise.
You can pass any number of keyword arguments, and they are stored in a dictionary.
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_plugin.demo",
        description="Translate English text about programming into Spanish with the shipped "
        "models: fairseq's beam search, our greedy decoding, and speculative decoding with the "
        "trained drafter and with a copy of the model (self).",
        epilog="example:\n  echo 'The file is closed.' | python -m specdec_plugin.demo --input -",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--models",
        default=os.path.join("checkpoints", "pydocs-en-es"),
        help="folder with verifier.pt, drafter.pt, spm.model and dictionaries "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--block-size", type=int, default=0, help="k (default: what the drafter was trained with)"
    )
    parser.add_argument(
        "--draft-confidence",
        type=float,
        default=0.2,
        help="a draft ends where the trained drafter is less sure than this (default: %(default)s)",
    )
    parser.add_argument(
        "--drafter-dtype",
        choices=list(DRAFTER_DTYPES),
        default="int8",
        help="type the drafter computes in; it has no influence on the translations "
        "(default: %(default)s)",
    )
    parser.add_argument("--input", help="a text file, or - for standard input (default: built in)")
    parser.add_argument("--repeats", type=int, default=3, help="times each sentence is timed")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    if options.repeats < 1 or options.threads < 1:
        raise PluginError("--repeats and --threads must be at least 1.")
    torch.set_num_threads(options.threads)
    files = {name: os.path.join(options.models, name) for name in ("verifier.pt", "spm.model")}
    for path in files.values():
        if not os.path.exists(path):
            raise PluginError(f"{path} does not exist. Run this in the project's folder.")
    session = open_session(options.models, "en", "es", files["verifier.pt"])
    pieces = sentencepiece.SentencePieceProcessor(model_file=files["spm.model"])
    lines = sentences_of(options.input)
    batches = batches_of(session, dataset_of(session, pieces, lines), batch_size=1)
    flags = {
        "drafter_path": os.path.join(options.models, "drafter.pt"),
        "block_size": options.block_size,
        "draft_confidence": options.draft_confidence,
        "drafter_dtype": options.drafter_dtype,
    }
    methods = build_methods(session, METHODS, flags, {})
    timings = run_interleaved(session, methods, batches, options.repeats)
    show(lines, {name: texts_of(session, pieces, timings[name]) for name in METHODS})
    show_times(timings, methods)


def sentences_of(path: Optional[str]) -> List[str]:
    """The sentences to translate, a line each; those of this module where there is no path."""
    lines = SENTENCES.splitlines() if path is None else list(read_lines(path))
    if not lines:
        raise PluginError("There is nothing to translate. Give a sentence a line.")
    return lines


def dataset_of(session: Session, pieces: Any, lines: Sequence[str]) -> Any:
    """fairseq's data set of the lines."""
    dictionary = session.task.source_dictionary
    encoded = [
        dictionary.encode_line(
            " ".join(pieces.encode(line, out_type=str)), add_if_not_exist=False
        ).long()
        for line in lines
    ]
    return session.task.build_dataset_for_inference(encoded, [len(each) for each in encoded])


def texts_of(session: Session, pieces: Any, timing: Timing) -> List[str]:
    """Translations in the order of the input."""
    dictionary = session.task.target_dictionary
    return [
        pieces.decode(dictionary.string(timing.hypotheses[number]["tokens"]).split())
        for number in sorted(timing.hypotheses)
    ]


def show(lines: Sequence[str], texts: Dict[str, List[str]]) -> None:
    """Print each sentence, its translation, and whether the methods agree."""
    same = 0
    for number, line in enumerate(lines):
        found = [texts[name][number] for name in METHODS[1:]]
        equal = len(set(found)) == 1
        same += equal
        verdict = "equal to" if equal else "DIFFERS FROM"
        print(f"\n{line}\n  {texts['specdec'][number]}\n  {verdict} greedy")
    print(f"\n{same} of {len(lines)} translations by SpecDec equal fairseq's greedy decoding.\n")


def show_times(timings: Dict[str, Timing], methods: Sequence[Method]) -> None:
    """Print the time of each method and the speed-up over fairseq's beam 5."""
    slowest = statistics.median(timings[METHODS[0]].seconds)
    print(f"{'method':16} {'ms a sentence':>13} {'times as fast':>13}   (medians, batch size 1)")
    for name in METHODS:
        median = statistics.median(timings[name].seconds)
        print(f"{name:16} {1000 * median:13.1f} {slowest / median:13.2f}")
    print()
    for method in methods[3:]:
        assert method.statistics is not None
        print(
            f"{method.name} accepted {method.statistics.accepted_tokens:.2f} tokens an iteration."
        )


if __name__ == "__main__":
    main()
