"""``specdec-bench``: all methods side by side in one run."""

import argparse
import os
import sys
from typing import Dict, List, Optional, Sequence

import torch

from ..errors import PluginError
from .command_line import build_parser, check_options, method_names
from .lineup import build, measure_memory
from .methods import Session, open_session
from .publish import publish
from .report import Row, summarise
from .resume import Journal, file_state
from .timing import Timing, batches_by_size, run_interleaved, seed_everything


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    argv = sys.argv[1:] if argv is None else argv
    options = build_parser().parse_args(argv)
    check_options(options)
    names = method_names(options)
    torch.set_num_threads(options.threads)
    seed_everything(options.seed)
    session = load(options)
    dataset = session.task.dataset(options.subset)
    sizes = options.batch_sizes if options.sweep == "batch" else [options.batch_size]
    batches = batches_by_size(session, dataset, sizes, options.sentences)
    references = None
    if options.reference is not None:
        numbers = sorted(number for each in batches[sizes[0]] for number in each["id"].tolist())
        references = read_references(options.reference, numbers, len(dataset))
    journals = {size: open_journal(options, size, len(batches[size])) for size in sizes}
    built = build(session, options, names, batches[sizes[0]][0])
    rows: List[Row] = []
    seconds: Dict[str, Sequence[float]] = {}
    for size in sizes:
        memory = measure_memory(session, built, batches[size])
        timings = run_interleaved(
            session,
            built.methods,
            batches[size],
            options.repeats,
            journal=journals[size],
            turn=options.turn,
        )
        texts = {name: texts_of(session, timing, options) for name, timing in timings.items()}
        found = summarise(built.methods, timings, texts, references, memory)
        rows += [{**row, **built.swept[row["method"]], "batch size": size} for row in found]
        seconds = {name: timing.seconds for name, timing in timings.items()}
    publish(options, argv, rows, seconds)


def load(options: argparse.Namespace) -> Session:
    """Verifier, dictionaries and data; PluginError where files are missing."""
    try:
        session = open_session(
            options.data, options.source_lang, options.target_lang, options.path, options.device
        )
        session.task.load_dataset(options.subset)
    except FileNotFoundError as error:
        raise PluginError(
            f"{error}. Name a folder that fairseq-preprocess wrote, and a split."
        ) from error
    return session


def open_journal(options: argparse.Namespace, size: int, batches: int) -> Optional[Journal]:
    """Where finished batches of this size are stored; None without ``--output``."""
    if options.output is None:
        return None
    os.makedirs(options.output, exist_ok=True)
    known = {f"--{name.replace('_', '-')}": value for name, value in vars(options).items()}
    for name in ("--output", "--resume"):
        del known[name]
    paths = [*options.path.split(":"), *([options.drafter_path] if options.drafter_path else [])]
    known.update({path: file_state(path) for path in paths})
    known["the number of batches"] = batches
    name = f"journal-{size}.jsonl" if options.sweep == "batch" else "journal.jsonl"
    return Journal(os.path.join(options.output, name), known, options.resume)


def texts_of(session: Session, timing: Timing, options: argparse.Namespace) -> List[str]:
    """Detokenised hypotheses in the order of the input."""
    dictionary = session.task.target_dictionary
    return [
        dictionary.string(timing.hypotheses[number]["tokens"], options.post_process)
        for number in sorted(timing.hypotheses)
    ]


def read_references(path: str, numbers: Sequence[int], size: int) -> List[str]:
    """The reference lines of the decoded sentences.

    Args:
        path: raw references, a line a sentence of the whole split.
        numbers: places of the decoded sentences in the split.
        size: sentences in the split.

    Raises:
        PluginError: the file is missing or of another split.
    """
    if not os.path.exists(path):
        raise PluginError(f"--reference {path} does not exist. Check the path.")
    with open(path, encoding="utf-8", newline="\n") as file:
        lines = file.read().split("\n")
    if lines[-1] == "":
        lines.pop()
    if len(lines) != size:
        raise PluginError(
            f"{path} has {len(lines):,} lines, but the split has {size:,} sentences. "
            "Give the references of the split."
        )
    return [lines[number] for number in numbers]


if __name__ == "__main__":
    main()
