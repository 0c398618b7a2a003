"""``specdec-demo``: translate English text with the shipped models, five ways."""

import argparse
import math
import os
import statistics
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from ..api import Session, Translator, load_session
from ..engine.threads import measured_threads
from ..errors import PluginError
from ..fairseq_compat.interrupts import console_program
from ..methods.options import DRAFTER_DTYPES
from ..progress import Progress
from ..textfiles import read_lines

#: What speed-ups are over. Its translations may differ from those of the others.
BASELINE = "fairseq beam 5"
#: How each method's translator is made, from a session and options of the trained drafter.
METHODS: Dict[str, Callable[[Session, Dict[str, Any]], Translator]] = {
    BASELINE: lambda session, trained: session.translator(None, beam=5),
    "fairseq beam 1": lambda session, trained: session.translator(None, beam=1),
    "greedy": lambda session, trained: session.translator("greedy"),
    "specdec": lambda session, trained: session.translator("specdec", **trained),
    "specdec self": lambda session, trained: session.translator("specdec"),
}
#: Sentences that each method decodes before it is timed.
WARM_UP = 3

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
        prog="specdec-demo",
        description="Translate English text about programming into Spanish with the shipped "
        "models: fairseq's beam search, our greedy decoding, and speculative decoding with the "
        "trained drafter and with the model's own drafts (self).",
        epilog="example:\n  echo 'The file is closed.' | specdec-demo --input -",
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
    parser.add_argument(
        "--repeats", type=int, default=3, help="times each sentence is timed (default: %(default)s)"
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=measured_threads(),
        help="CPU threads (default: OMP_NUM_THREADS, else 2)",
    )
    return parser


@console_program
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
    session = load_session(
        files["verifier.pt"], source_lang="en", target_lang="es", subwords=files["spm.model"]
    )
    lines = sentences_of(options.input)
    translators = build(session, options)
    seconds, texts = race(translators, session, lines, options.repeats)
    show(lines, texts)
    show_times(seconds, translators)


def build(session: Session, options: argparse.Namespace) -> Dict[str, Translator]:
    """The methods by name."""
    trained = {
        "drafter_path": os.path.join(options.models, "drafter.pt"),
        "block_size": options.block_size,
        "draft_confidence": options.draft_confidence,
        "drafter_dtype": options.drafter_dtype,
    }
    return {name: make(session, trained) for name, make in METHODS.items()}


def race(
    translators: Dict[str, Translator], session: Session, lines: Sequence[str], repeats: int
) -> Tuple[Dict[str, List[float]], Dict[str, List[str]]]:
    """Translate the lines one by one with each method.

    Args:
        translators: by name; they take turns, and the first turn rotates.
        session: what they share.
        lines: raw text.
        repeats: times each line is timed; the least time counts.

    Returns:
        by method, the seconds of each line and its translation.
    """
    batches = session.batches(session.dataset(session.pieces(lines)), batch_size=1)
    for translator in translators.values():
        for batch in batches[:WARM_UP]:
            translator.decode(batch)
    seconds = {name: [math.inf] * len(batches) for name in translators}
    texts = {name: [""] * len(batches) for name in translators}
    names = list(translators)
    for turn in Progress(range(repeats * len(names)), unit="turn"):
        # Each repeat begins one method later.
        name = names[(turn + turn // len(names)) % len(names)]
        counted = translators[name].statistics
        if counted is not None:
            counted.reset()
        for batch in batches:
            number = int(batch["id"])
            begin = time.perf_counter()
            ((best, *_),) = translators[name].decode(batch)
            spent = time.perf_counter() - begin
            seconds[name][number] = min(seconds[name][number], spent)
            texts[name][number] = session.hypothesis(best).text
    return seconds, texts


def sentences_of(path: Optional[str]) -> List[str]:
    """The sentences to translate, a line each; those of this module where there is no path."""
    lines = SENTENCES.splitlines() if path is None else list(read_lines(path))
    if not lines:
        raise PluginError("There is nothing to translate. Give a sentence a line.")
    return lines


def show(lines: Sequence[str], texts: Dict[str, List[str]]) -> None:
    """Print each sentence, its translation, and whether the methods agree."""
    same = 0
    for number, line in enumerate(lines):
        found = {each[number] for name, each in texts.items() if name != BASELINE}
        equal = len(found) == 1
        same += equal
        verdict = "equal to" if equal else "DIFFERS FROM"
        print(f"\n{line}\n  {texts['specdec'][number]}\n  {verdict} greedy")
    print(f"\n{same} of {len(lines)} translations by SpecDec equal fairseq's greedy decoding.\n")


def show_times(seconds: Dict[str, List[float]], translators: Dict[str, Translator]) -> None:
    """Print the time of each method and the speed-up over fairseq's beam 5."""
    medians = {name: statistics.median(each) for name, each in seconds.items()}
    print(f"{'method':16} {'ms a sentence':>13} {'times as fast':>13}   (medians, batch size 1)")
    for name, median in medians.items():
        print(f"{name:16} {1000 * median:13.1f} {medians[BASELINE] / median:13.2f}")
    print()
    for name, translator in translators.items():
        if translator.method == "specdec" and translator.statistics is not None:
            accepted = translator.statistics.accepted_tokens
            print(f"{name} accepted {accepted:.2f} tokens an iteration.")
    print("\nspecdec drafts with the trained drafter, and specdec self with the model itself.")
    print(f"Threads: {torch.get_num_threads()}. Times of a few lines mean little.")


if __name__ == "__main__":
    main()
