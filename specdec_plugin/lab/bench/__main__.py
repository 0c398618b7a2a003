"""``specdec-bench``: all methods side by side in one run."""

import argparse
import os
import sys
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch
from fairseq import utils

from ...api import Session, check_device, load_models
from ...checksum import checksum
from ...errors import PluginError
from ...fairseq_compat.interrupts import console_program
from ...fairseq_compat.options import flag_of, task_options
from ...fairseq_compat.tasks import given_task_options, set_up_task
from ...fairseq_compat.user_dir import import_user_dir
from ...outputs import check_output, told_if_unwritable
from ...textfiles import read_lines
from ..records import code_state, file_state
from .command_line import build_parser, check_options, method_names, tokenizer_of
from .edits import Edits, edit_ratios, ratio_rows
from .examples import chosen, drafting, example_rows
from .flops import gflops
from .lineup import Built, build, measure_memory
from .methods import Method
from .publish import publish
from .report import Row, summarise
from .resume import Journal
from .sweeps import Conditions, Direction, conditions, directions
from .timing import Timing, batches_by_size, run_interleaved, seed_everything


@console_program
def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    argv = sys.argv[1:] if argv is None else argv
    import_user_dir(argv)
    options = build_parser().parse_args(argv)
    check_options(options)
    check_device(options.device)
    if options.output is not None:
        check_output(options.output, folder=True)
    names = method_names(options)
    torch.set_num_threads(options.threads[0])
    seed_everything(options.seed)
    runs = [run(session, options, names, direction) for direction, session in sessions(options)]
    rows = [row for each in runs for row in each.rows]
    publish(options, argv, rows, runs[-1].seconds, runs[-1].edits)


class Run(NamedTuple):
    """What was measured in one direction.

    Attributes:
        rows: figures, for each condition and method.
        seconds: by method: of each batch, under the last condition.
        edits: see :func:`study_edits`.
    """

    rows: List[Row]
    seconds: Dict[str, List[float]]
    edits: Optional[Edits]


def sessions(options: argparse.Namespace) -> Iterator[Tuple[Direction, Session]]:
    """Each direction with its session; the models are loaded once."""
    models: Sequence[Any] = ()
    for direction in directions(options):
        languages = {"source_lang": direction.source, "target_lang": direction.target}
        given = {**given_task_options(options), **languages}
        task = set_up_task(options.task, options.data, given)
        models = models or load_models(options.path, task, options.device)
        yield direction, Session(task, models, prefix_size=options.prefix_size)


def run(
    session: Session, options: argparse.Namespace, names: Sequence[str], direction: Direction
) -> Run:
    """Time the methods ``names`` in one direction, under each condition of the command line."""
    every = conditions(options, direction)
    dataset = session.split(options.gen_subset)
    batches = batches_by_size(session, dataset, [each.size for each in every], options.sentences)
    first = batches[every[0].size]
    references = None
    if options.reference is not None:
        numbers = sorted(number for each in first for number in each["id"].tolist())
        references = read_references(direction.named(options.reference), numbers, len(dataset))
    journals = [open_journal(options, each, batches[each.size]) for each in every]
    built = build(session, options, names, first[0])
    rows: List[Row] = []
    timings: Dict[str, Timing] = {}
    for each, journal in zip(every, journals):
        torch.set_num_threads(each.threads)
        timings, found = measure(session, options, built, batches[each.size], references, journal)
        shared = {"batch size": each.size, "threads": each.threads, "direction": str(direction)}
        rows += [{**row, **built.swept[row["method"]], **shared} for row in found]
    seconds = {name: timing.seconds for name, timing in timings.items()}
    return Run(rows, seconds, study_edits(session, options, built.methods, first, timings))


def measure(
    session: Session,
    options: argparse.Namespace,
    built: Built,
    batches: Sequence[Any],
    references: Optional[List[str]],
    journal: Optional[Journal],
) -> Tuple[Dict[str, Timing], List[Row]]:
    """Time every method on these batches; also the figures, a row for each."""
    memory = measure_memory(session, built, batches)
    timings = run_interleaved(
        session,
        built.methods,
        batches,
        options.repeats,
        journal=journal,
        turn=options.turn,
        pause=options.pause / 1000,
    )
    texts = {
        method.name: texts_of(session, method, timings[method.name], options)
        for method in built.methods
    }
    spent = gflops(session, built.methods, timings, batches)
    language = getattr(task_options(session.task), "target_lang", None)
    tokenize = tokenizer_of(options.bleu_tokenize, language)
    return timings, summarise(built.methods, timings, texts, references, memory, spent, tokenize)


def study_edits(
    session: Session,
    options: argparse.Namespace,
    methods: Sequence[Method],
    batches: Sequence[Any],
    timings: Mapping[str, Timing],
) -> Optional[Edits]:
    """Figures by edit ratio and examples, each where its option is given; None without both."""
    if not options.edit_ratio and options.examples is None:
        return None
    ratios = edit_ratios(session, batches, timings)
    rows = ratio_rows(ratios, methods, timings) if options.edit_ratio else []
    indices = chosen(ratios, options.examples or 0)
    args = drafting(methods), batches, timings, ratios, indices, options.post_process
    return Edits(ratios, rows, example_rows(session, *args))


def open_journal(
    options: argparse.Namespace, where: Conditions, batches: Sequence[Any]
) -> Optional[Journal]:
    """Where batches finished under these conditions are stored; None without ``--output``."""
    if options.output is None:
        return None
    with told_if_unwritable(options.output):
        os.makedirs(options.output, exist_ok=True)
    known = {flag_of(name): value for name, value in vars(options).items()}
    for name in ("--output", "--resume", "--edit-ratio", "--examples"):  # no time depends on them
        del known[name]
    others = (
        options.drafter_path, options.heads_path, options.vocab_clusters,
        options.drafter_vocab_clusters,
    )  # fmt: skip
    paths = [*utils.split_paths(options.path), *filter(None, others)]
    known.update({path: file_state(path) for path in paths})
    known["the number of batches"] = len(batches)
    sources = (batch["net_input"]["src_tokens"] for batch in batches)
    known["the sentences"] = checksum(each.numpy().tobytes() for each in sources)
    known["the plugin's code"] = code_state(options.user_dir)
    return Journal(os.path.join(options.output, where.journal), known, options.resume)


def texts_of(
    session: Session, method: Method, timing: Timing, options: argparse.Namespace
) -> List[str]:
    """Detokenised hypotheses in the order of the input."""
    found = timing.hypotheses
    return [
        session.printed(method.generator, found[number]["tokens"], options.post_process)
        for number in sorted(found)
    ]


def read_references(path: str, numbers: Sequence[int], size: int) -> List[str]:
    """The reference lines of the decoded sentences.

    Args:
        path: raw references, a line a sentence of the whole split.
        numbers: of the decoded sentences in the split.
        size: sentences in the split.

    Raises:
        PluginError: the file is missing, not text, or of another split.
    """
    lines = list(read_lines(path))
    if len(lines) != size:
        raise PluginError(
            f"{path} has {len(lines):,} lines, but the split has {size:,} sentences. "
            "Give the references of the split."
        )
    return [lines[number] for number in numbers]


if __name__ == "__main__":
    main()
