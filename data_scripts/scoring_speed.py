"""How long it takes to score references, with the kernels and by fairseq, in turns."""

import argparse
import shlex
import statistics
import sys
import time
from argparse import Namespace
from typing import Any, Dict, List, Optional, Sequence, Tuple

import torch
from example_results import origin_of, write_results

import specdec_plugin
from specdec_plugin.api import Session
from specdec_plugin.fairseq_compat.options import task_options, with_own_options
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Score the references of a test set with --decoding greedy, and by fairseq's own scorer. The two take
turns in one process. Print seconds, their ratio, and how far apart two scores are at most."""

EXAMPLE = """\
example:
  python data_scripts/scoring_speed.py data-bin -s en -t es --threads 2 --batch-sizes 1 32 512 \\
      --path checkpoints/pydocs-en-es/verifier.pt --output scoring.json"""

SCORERS = ("fairseq", "ours")


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scoring_speed.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("data", help="folder of fairseq-preprocess")
    add("-s", "--source-lang", required=True, help="of the data")
    add("-t", "--target-lang", required=True, help="of the data")
    add("--path", required=True, help="checkpoint of the model")
    add("--subset", default="test", help="split of the data (default: %(default)s)")
    add("--batch-sizes", type=int, nargs="+", default=[1, 32, 512], help="default: 1 32 512")
    add("--threads", type=int, default=2, help="default: %(default)s")
    add("--repeats", type=int, default=3, help="of each scorer (default: %(default)s)")
    add("--output", required=True, help="file for all figures, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    argv = sys.argv[1:] if argv is None else argv
    options = get_parser().parse_args(argv)
    torch.set_num_threads(options.threads)
    session = specdec_plugin.load_session(
        options.path,
        options.data,
        source_lang=options.source_lang,
        target_lang=options.target_lang,
    )
    scorers = {name: scorer(session, name) for name in SCORERS}
    rows = []
    for size in options.batch_sizes:
        batches = session.batches(session.split(options.subset), size)
        rows.append({"batch": size, **measured(session, scorers, batches, options.repeats)})
    print(table(rows))
    origin = origin_of(shlex.join(["scoring_speed.py", *argv]), [])
    write_results(options.output, {**origin, "rows": rows})


def scorer(session: Session, name: str) -> Any:
    """What ``--score-reference`` means, with ``--decoding greedy`` or without."""
    task = with_own_options(session.task)
    task_options(task).decoding = "greedy" if name == "ours" else None
    return task.build_generator(session.models, Namespace(score_reference=True, prefix_size=0))


def measured(
    session: Session, scorers: Dict[str, Any], batches: Sequence[Any], repeats: int
) -> Dict[str, Any]:
    """Seconds of each scorer, as many times, and how far apart their scores are."""
    seconds: Dict[str, List[float]] = {name: [] for name in scorers}
    scores: Dict[str, List[float]] = {}
    for each in scorers.values():
        session.decode(each, batches[0])
    for _ in Progress(range(repeats), unit="repeat"):
        for name, each in scorers.items():
            spent, scores[name] = scored(session, each, batches)
            seconds[name].append(spent)
    apart = max(abs(one - other) for one, other in zip(*scores.values(), strict=True))
    return {"seconds": seconds, "sentences": len(scores["ours"]), "apart": apart}


def scored(session: Session, each: Any, batches: Sequence[Any]) -> Tuple[float, List[float]]:
    """Seconds, and the score of each sentence."""
    found, begin = [], time.perf_counter()
    for batch in batches:
        found += [float(best["score"]) for best, *_ in session.decode(each, batch)]
    return time.perf_counter() - begin, found


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """The medians, in Markdown."""
    lines = [
        "| sentences a batch | fairseq, s | with the kernels, s | times as fast |",
        "|---:|---:|---:|---:|",
    ]
    for row in rows:
        theirs, ours = (statistics.median(row["seconds"][name]) for name in SCORERS)
        lines.append(f"| {row['batch']} | {theirs:.1f} | {ours:.1f} | {theirs / ours:.1f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
