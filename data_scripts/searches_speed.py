"""How long searches with fairseq's strategies take, with our methods and by fairseq, in turns."""

import argparse
import shlex
import statistics
import sys
import time
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import torch
from example_results import origin_of, write_results
from textfiles import check_parallel, read_lines

import specdec_plugin
from specdec_plugin.api import FAIRSEQ, Session, Translator
from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Translate a text with 5 beams and one of fairseq's strategies, by --decoding auto and by fairseq's
own search. The two take turns in one process. Print the median milliseconds a batch, and the
median ratio. Phrases are two words of each reference."""

EXAMPLE = """\
example:
  python data_scripts/searches_speed.py checkpoints/pydocs-en-es --input test.en \\
      --references test.es --batches 60 10 --output searches.json"""

#: By name: options of a search.
SEARCHES: Dict[str, Dict[str, Any]] = {
    "5 beams": {},
    "5 diverse groups": {"diverse_beam_groups": 5},
    "diverse siblings": {"diversity_rate": 0.5},
    "phrases": {"constraints": "unordered"},
}
BEAMS = 5
#: Batches that a program decodes before the other one's turn, whose threads spin for a while.
TURN = 10
#: Words of a reference that are prescribed, and where they begin.
WORDS, FIRST_WORD = 2, 2


class Texts(NamedTuple):
    """Sentences, and a phrase of the translation of each."""

    lines: List[str]
    phrases: List[List[str]]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="searches_speed.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("folder", help="of specdec-pack")
    add("--input", required=True, help="a text")
    add("--references", required=True, help="its translation")
    add("--batch-sizes", type=int, nargs="+", default=[1, 32], help="default: 1 32")
    add("--batches", type=int, nargs="+", default=[60, 5], help="of each size (default: 60 5)")
    add("--threads", type=int, default=2, help="default: %(default)s")
    add("--output", required=True, help="file for all figures, as JSON")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    argv = sys.argv[1:] if argv is None else argv
    options = get_parser().parse_args(argv)
    if len(options.batches) != len(options.batch_sizes):
        raise PluginError("--batches has another length than --batch-sizes: give a number a size.")
    texts = read_texts(options.input, options.references)
    if len(texts.lines) < max(options.batch_sizes):
        raise PluginError(
            f"{options.input} has {len(texts.lines):,} lines, fewer than a batch of "
            f"{max(options.batch_sizes)}: give a longer text, or smaller --batch-sizes."
        )
    torch.set_num_threads(options.threads)
    session = specdec_plugin.load_session(options.folder)
    rows = []
    for size, count in zip(options.batch_sizes, options.batches, strict=True):
        for name in SEARCHES:
            print(f"{name}, {size} sentences a batch", file=sys.stderr)
            rows.append(
                {"search": name, "batch": size, **measured(session, name, texts, size, count)}
            )
    print(table(rows))
    origin = origin_of(shlex.join(["searches_speed.py", *argv]), [])
    write_results(options.output, {**origin, "rows": rows})


def read_texts(source: str, references: str) -> Texts:
    """Sentences, and a phrase of each reference that is long enough for one."""
    lines, phrases = list(read_lines(source)), []
    for reference in read_lines(references):
        words = reference.split()[FIRST_WORD : FIRST_WORD + WORDS]
        phrases.append([" ".join(words)] if len(words) == WORDS else [])
    check_parallel(source, references, len(lines), len(phrases))
    return Texts(lines, phrases)


def measured(session: Session, name: str, texts: Texts, size: int, count: int) -> Dict[str, Any]:
    """Seconds of each batch by both programs, and how many sentences have the same output."""
    options = {"beam": BEAMS, **SEARCHES[name]}
    programs = {each: session.translator(each, **options) for each in (FAIRSEQ, "auto")}
    seconds: Dict[str, List[float]] = {each: [] for each in programs}
    found: Dict[str, List[str]] = {each: [] for each in programs}
    given = [*batches(texts, size, count)]
    for translator in programs.values():  # kernels are compiled, and tables of positions made
        decoded(translator, name, given[0])
    with Progress(total=count, unit="batch") as bar:
        for begin in range(0, count, TURN):
            for program, translator in programs.items():
                for batch in given[begin : begin + TURN]:
                    start = time.perf_counter()
                    found[program] += decoded(translator, name, batch)
                    seconds[program].append(time.perf_counter() - start)
            bar.update(min(TURN, count - begin))
    equal = sum(one == other for one, other in zip(*found.values(), strict=True))
    return {"seconds": seconds, "sentences": len(found["auto"]), "equal": equal}


def batches(texts: Texts, size: int, count: int) -> Iterator[Texts]:
    """So many batches, whose beginnings are spread over the text."""
    room = len(texts.lines) - size
    for number in range(count):
        begin = room * number // max(1, count - 1)
        yield Texts(texts.lines[begin : begin + size], texts.phrases[begin : begin + size])


def decoded(translator: Translator, name: str, batch: Texts) -> List[str]:
    """The best output of each sentence, in subword pieces."""
    phrases = batch.phrases if "constraints" in SEARCHES[name] else None
    found = translator.translate(batch.lines, len(batch.lines), phrases=phrases)
    return [each.pieces for each in found]


def ratio(row: Dict[str, Any]) -> float:
    """The median over batches of how many times as fast ours is."""
    pairs: List[Tuple[float, float]] = list(zip(*row["seconds"].values(), strict=True))
    return statistics.median(theirs / ours for theirs, ours in pairs)


def table(rows: Sequence[Dict[str, Any]]) -> str:
    """The medians, in Markdown."""
    lines = [
        "| search | sentences a batch | fairseq, ms a batch | `auto`, ms a batch | times as fast "
        "| output as fairseq's |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        theirs, ours = (1000 * statistics.median(each) for each in row["seconds"].values())
        lines.append(
            f"| {row['search']} | {row['batch']} | {theirs:,.1f} | {ours:,.1f} | {ratio(row):.1f} "
            f"| {row['equal']} of {row['sentences']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
