"""``specdec-bench``: all methods side by side in one run."""

import argparse
import json
import os
from typing import Any, Dict, List, Optional, Sequence

import torch

from ..decoding.config import DRAFTER_DTYPES
from ..errors import PluginError
from .methods import BASELINES, METHODS, Session, build_methods, open_session
from .report import machine, markdown, summarise
from .timing import Timing, batches_of, run_interleaved

EXAMPLE = """example:
  specdec-bench data-bin -s en -t es --path verifier.pt --drafter-path drafter.pt \\
      --post-process sentencepiece --reference test.es --threads 2 --output results/
"""


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    names = [*BASELINES, *METHODS]
    parser = argparse.ArgumentParser(
        prog="specdec-bench",
        description="Decode the same sentences with every method, taking turns, and report "
        "latency, speed-ups, accepted tokens, BLEU and how many hypotheses equal greedy's.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("data", help="binarised data folder")
    parser.add_argument("--source-lang", "-s", required=True, help="source language")
    parser.add_argument("--target-lang", "-t", required=True, help="target language")
    parser.add_argument("--path", required=True, help="verifier checkpoint (several: a.pt:b.pt)")
    parser.add_argument("--drafter-path", help="drafter checkpoint")
    parser.add_argument(
        "--methods",
        default="fairseq beam 5,fairseq beam 1,greedy,specdec",
        help=f"comma-separated, of: {', '.join(names)} (default: %(default)s)",
    )
    parser.add_argument("--subset", default="test", help="split to decode (default: %(default)s)")
    parser.add_argument("--sentences", type=int, help="decode only so many, spread over the split")
    parser.add_argument("--batch-size", type=int, default=1, help="sentences a batch (default: 1)")
    parser.add_argument("--repeats", type=int, default=1, help="times each batch is timed")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    parser.add_argument("--device", help="for example cuda (default: the CPU)")
    parser.add_argument(
        "--block-size", type=int, default=0, help="k; 0: as the drafter was trained"
    )
    parser.add_argument("--top-beta", type=int, default=3, help="β of specdec++ (default: 3)")
    parser.add_argument("--tolerance", type=float, default=1.0, help="τ of specdec++ (default: 1)")
    parser.add_argument(
        "--drafter-dtype", choices=list(DRAFTER_DTYPES), help="type the drafter computes in"
    )
    parser.add_argument("--max-len-a", type=float, default=0, help="as in fairseq-generate")
    parser.add_argument("--max-len-b", type=int, default=200, help="as in fairseq-generate")
    parser.add_argument("--post-process", default="sentencepiece", help="as in fairseq-generate")
    parser.add_argument("--reference", help="raw references, a line a sentence; default: no BLEU")
    parser.add_argument("--output", help="folder for results.json and results.md")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Console program."""
    options = build_parser().parse_args(argv)
    names = [name.strip() for name in options.methods.split(",")]
    unknown = sorted({*names} - {*BASELINES, *METHODS})
    if unknown:
        known = ", ".join([*BASELINES, *METHODS])
        raise PluginError(f"--methods {unknown[0]}: there is no such method. Known: {known}.")
    torch.set_num_threads(options.threads)
    try:
        session = open_session(
            options.data, options.source_lang, options.target_lang, options.path, options.device
        )
        session.task.load_dataset(options.subset)
    except FileNotFoundError as error:
        raise PluginError(
            f"{error}. Name a folder that fairseq-preprocess wrote, and a split."
        ) from error
    batches = batches_of(session, session.task.dataset(options.subset), options.batch_size)
    if options.sentences is not None:
        wanted = max(1, options.sentences // options.batch_size)
        batches = batches[:: max(1, len(batches) // wanted)]
    numbers = sorted(number for batch in batches for number in batch["id"].tolist())
    references = None
    if options.reference is not None:
        size = len(session.task.dataset(options.subset))
        references = read_references(options.reference, numbers, size)
    flags = {
        "drafter_path": options.drafter_path,
        "block_size": options.block_size,
        "top_beta": options.top_beta,
        "tolerance": options.tolerance,
        "drafter_dtype": options.drafter_dtype,
    }
    generation = {"max_len_a": options.max_len_a, "max_len_b": options.max_len_b}
    methods = build_methods(session, names, flags, generation)
    timings = run_interleaved(session, methods, batches, options.repeats)
    texts = {name: texts_of(session, timing, options) for name, timing in timings.items()}
    rows = summarise(methods, timings, texts, references)
    table = markdown(rows)
    print(table)
    if options.output:
        write(options.output, {"machine": machine(), "options": vars(options), "rows": rows}, table)


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


def write(folder: str, results: Dict[str, Any], table: str) -> None:
    """Store the figures for programs and for readers."""
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "results.json"), "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
    with open(os.path.join(folder, "results.md"), "w", encoding="utf-8") as file:
        file.write(table + "\n")


if __name__ == "__main__":
    main()
