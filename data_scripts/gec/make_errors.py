"""Errors for grammatical error correction: clean text → pairs of wrong and right lines."""

import argparse
import contextlib
import itertools
import multiprocessing
import os
import sys
from collections import Counter, deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Optional, TypeVar
from typing import Counter as CounterOf

from confusion import Lexicon, count_words, make_lexicon, read_vocabulary, write_vocabulary
from english import ENGLISH
from error_types import ERROR_TYPES
from language import Language
from linestreams import STDIN, add_suffixes, atomic_writer, read_lines
from noise import Noise
from ukrainian import UKRAINIAN

from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import is_stream, same_file
from specdec_plugin.progress import Progress

DESCRIPTION = """\
Put errors into clean text, a sentence a line, raw or tokenised, and write two
line-aligned files: PREFIX.err with errors and PREFIX.cor without. Words that
are no ordinary ones (markup, code, numbers, names in capitals) are left alone.

The errors depend on --seed, on the vocabulary and on the number of the line,
and not on --workers: the same command makes the same files anywhere."""

EPILOG = """\
kinds of errors, with their weights in the default mixes ({languages}):
{kinds}

examples:
  python data_scripts/gec/make_errors.py corpus.en.gz --output errors/train --workers 2
  # ten times the same text, each time with other errors of two kinds:
  python data_scripts/gec/make_errors.py corpus.en --output errors/train --copies 10 \\
      --mix article=2,preposition=1 --error-rate 0.1
  # from another program; the words must be counted before:
  zcat huge.gz | python data_scripts/gec/make_errors.py - --output errors/train \\
      --vocabulary words.txt"""

LANGUAGES: Dict[str, Language] = {"en": ENGLISH, "uk": UKRAINIAN}
#: Lines that a worker gets at a time.
CHUNK = 1000
#: Chunks that are read ahead of the one that is written, for each worker.
AHEAD = 3
#: Above this share of wrong words in a line that has errors, they would lie on each other.
HIGHEST_RATE = 0.5

Item = TypeVar("Item")
Result = TypeVar("Result")


def _weights(kind: str) -> str:
    """Those of a kind of error, in columns."""
    weights = [language.mix.get(kind) for language in LANGUAGES.values()]
    return " ".join(f"{'-' if weight is None else f'{weight:g}':<4}" for weight in weights)


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    kinds = "\n".join(
        f"  {name:12} {_weights(name)} {(kind.__doc__ or '').splitlines()[0]}"
        for name, kind in ERROR_TYPES.items()
    )
    parser = argparse.ArgumentParser(
        prog="make_errors.py",
        description=DESCRIPTION,
        epilog=EPILOG.format(kinds=kinds, languages=", ".join(LANGUAGES)),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("input", metavar="TEXT", help="clean text, plain or .gz; - for stdin")
    parser.add_argument("--output", required=True, metavar="PREFIX", help="of the two files")
    add_suffixes(parser, "errors and without")
    _add_errors(parser)
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="default 1")
    parser.add_argument(
        "--copies",
        type=int,
        default=1,
        metavar="N",
        help="go over the text so many times, with other errors each time (default 1)",
    )
    _add_vocabulary(parser)
    return parser


def _add_errors(parser: argparse.ArgumentParser) -> None:
    """Which errors are made, and how many."""
    parser.add_argument(
        "--error-rate",
        type=float,
        default=0.15,
        metavar="SHARE",
        help="errors for each ordinary word, on average over lines (default 0.15)",
    )
    parser.add_argument(
        "--clean-share",
        type=float,
        default=0.1,
        metavar="SHARE",
        help="of lines left as they are (default 0.1); short ones may be without errors too",
    )
    parser.add_argument(
        "--mix",
        metavar="KIND=WEIGHT,...",
        help="kinds of errors and how often they are made; those not named are not "
        "(default: those of the language, below)",
    )
    parser.add_argument(
        "--language", choices=LANGUAGES, default="en", help="of the text (default en)"
    )


def _add_vocabulary(parser: argparse.ArgumentParser) -> None:
    """Where the words come from that others are taken for."""
    words = parser.add_argument_group("vocabulary, from which confusion sets are made")
    words.add_argument(
        "--vocabulary",
        metavar="FILE",
        help="words with their counts: read where it is there, else counted and written",
    )
    words.add_argument(
        "--vocabulary-lines",
        type=int,
        default=1_000_000,
        metavar="N",
        help="count words in so many first lines of TEXT (default 1000000)",
    )
    words.add_argument(
        "--vocabulary-size", type=int, default=50_000, metavar="N", help="default 50000"
    )
    words.add_argument(
        "--min-count",
        type=int,
        default=3,
        metavar="N",
        help="a word that occurs less often may be an error itself (default 3)",
    )


def parse_mix(text: str, language: str = "en") -> Dict[str, float]:
    """``"article=2,swap=0.5"`` as a dictionary, in the order of the table of kinds.

    >>> parse_mix("swap=0.5,article=2")
    {'article': 2.0, 'swap': 0.5}
    """
    kinds = [kind for kind in ERROR_TYPES if kind in LANGUAGES[language].mix]
    weights: Dict[str, float] = {}
    for part in text.split(","):
        name, _, weight = part.strip().partition("=")
        if name not in kinds:
            raise PluginError(
                f"--mix names '{name}', which is no kind of error of --language {language}. "
                f"Choose from {', '.join(kinds)}."
            )
        try:
            weights[name] = float(weight)
        except ValueError:
            raise PluginError(f"--mix {part} has no weight. Write for instance {name}=1.") from None
    if not all(0 <= weight < float("inf") for weight in weights.values()) or not any(
        weights.values()
    ):
        raise PluginError("--mix takes weights from 0 up, not all of them 0. Correct them.")
    return {name: weights[name] for name in kinds if weights.get(name)}


def check_arguments(args: argparse.Namespace) -> None:
    """Refuse what would fail later, or say nothing and do something else."""
    for name in ("workers", "copies", "vocabulary_lines", "vocabulary_size", "min_count"):
        if getattr(args, name) < 1:
            raise PluginError(f"--{name.replace('_', '-')} must be at least 1. Correct it.")
    if not 0 <= args.clean_share < 1:
        raise PluginError("--clean-share must be from 0 to less than 1. Correct it.")
    highest = HIGHEST_RATE * (1 - args.clean_share)
    if not 0 <= args.error_rate <= highest:
        raise PluginError(
            f"--error-rate must be from 0 to {highest:g} (half of the words of the lines that "
            "are not left clean). Choose a lower one."
        )
    if args.suffixes[0] == args.suffixes[1]:
        raise PluginError("--suffixes names one file twice. Give two that differ.")
    outputs = [f"{args.output}.{suffix}" for suffix in args.suffixes]
    for path in filter(None, (args.input, args.vocabulary)):
        if any(same_file(path, output) for output in outputs):
            raise PluginError(f"{path} would be written over. Choose another --output.")
    if args.input == STDIN or is_stream(args.input):
        name = "Standard input" if args.input == STDIN else args.input
        if args.copies > 1:
            raise PluginError(f"{name} can be read once only. Leave --copies out.")
        if not (args.vocabulary and os.path.exists(args.vocabulary)):
            raise PluginError(
                f"{name} can be read once only, and the words must be counted first. "
                "Give --vocabulary FILE, made with --vocabulary from a file of such text."
            )


def get_lexicon(args: argparse.Namespace) -> Lexicon:
    """The vocabulary, read or counted, and its confusion sets."""
    if args.vocabulary and os.path.exists(args.vocabulary):
        counts = read_vocabulary(args.vocabulary)
        origin = args.vocabulary
    else:
        lines = itertools.islice(read_lines(args.input), args.vocabulary_lines)
        progress = Progress(lines, desc="words", unit="line")
        counts = count_words(progress, args.min_count, args.vocabulary_size)
        origin = args.input
        if args.vocabulary:
            write_vocabulary(args.vocabulary, counts)
    lexicon = make_lexicon(counts, LANGUAGES[args.language])
    print(
        f"Vocabulary: {len(counts):,} words from {origin}, "
        f"{len(lexicon.confusions):,} of them with others that are like them.",
        file=sys.stderr,
    )
    return lexicon


# --- lines, through workers, in order ---------------------------------------------------


class Chunk(NamedTuple):
    """Lines that are handed to a worker together."""

    copy: int
    #: The number of the first line, from 0.
    first: int
    lines: List[str]


class Pairs(NamedTuple):
    """What a worker makes of a chunk."""

    wrong: str
    right: str
    lines: int
    unchanged: int
    #: Of each kind.
    errors: CounterOf[str]
    #: Words that errors could be made in.
    words: int


_noise: Noise  # each worker's own


def start_worker(noise: Noise) -> None:
    """Keep the tables in the worker, to which they are handed once."""
    global _noise
    _noise = noise


def make_pairs(chunk: Chunk) -> Pairs:
    """Both sides of the lines of a chunk."""
    wrong, right = [], []
    errors: CounterOf[str] = Counter()
    words = 0
    for number, line in enumerate(chunk.lines, start=chunk.first):
        pair = _noise.pair(chunk.copy, number, line)
        wrong.append(pair.wrong + "\n")
        right.append(pair.right + "\n")
        errors.update(pair.errors)
        words += pair.words
    unchanged = sum(map(str.__eq__, wrong, right))
    return Pairs("".join(wrong), "".join(right), len(right), unchanged, errors, words)


def chunks(read: Callable[[], Iterable[str]], copies: int, size: int = CHUNK) -> Iterator[Chunk]:
    """The lines that ``read`` gives, so many times, cut into chunks."""
    for copy in range(copies):
        lines = iter(read())
        for first in itertools.count(0, size):
            found = list(itertools.islice(lines, size))
            if not found:
                break
            yield Chunk(copy, first, found)


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], noise: Noise, workers: int
) -> Iterator[Result]:
    """``function`` of each item, in order; items are taken only a little ahead of results.

    ``multiprocessing.Pool.imap`` would take all items at once into memory, and would wait
    for ever for a worker that was killed.
    """
    if workers == 1:
        start_worker(noise)
        yield from map(function, items)
        return
    waiting: Deque[Future[Result]] = deque()
    with ProcessPoolExecutor(workers, _context(), start_worker, (noise,)) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) >= workers * AHEAD:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise PluginError(
                "A worker was killed, perhaps because memory ran out. Start fewer --workers."
            ) from None


def _context() -> multiprocessing.context.BaseContext:
    """Forked workers have the tables at once; others import everything again."""
    methods = multiprocessing.get_all_start_methods()
    return multiprocessing.get_context("fork" if "fork" in methods else None)


def write_pairs(args: argparse.Namespace, noise: Noise) -> CounterOf[str]:
    """Write both files; returns counts of lines, words and errors."""
    paths = [f"{args.output}.{suffix}" for suffix in args.suffixes]
    work = chunks(lambda: read_lines(args.input), args.copies)
    totals: CounterOf[str] = Counter()
    with contextlib.ExitStack() as stack:
        wrong, right = [stack.enter_context(atomic_writer(path)) for path in paths]
        progress = stack.enter_context(Progress(desc="errors", unit="line"))
        for pairs in map_in_order(make_pairs, work, noise, args.workers):
            wrong.write(pairs.wrong)
            right.write(pairs.right)
            progress.update(pairs.lines)
            totals.update(pairs.errors)
            totals.update(lines=pairs.lines, unchanged=pairs.unchanged, words=pairs.words)
        if not totals["lines"]:
            raise PluginError(f"{args.input} holds no line. Give a file with text.")
    return totals


def report(totals: CounterOf[str]) -> str:
    """What was made, in a few lines."""
    made = {name: totals[name] for name in ERROR_TYPES if totals[name]}
    errors, lines = sum(made.values()), totals["lines"]
    told = ", ".join(f"{name} {count / errors:.1%}" for name, count in made.items())
    return (
        f"{lines:,} lines, {totals['unchanged'] / lines:.1%} without errors; "
        f"{errors:,} errors in {totals['words']:,} words ({errors / max(1, totals['words']):.1%})"
        + (f": {told}." if told else ".")
    )


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    check_arguments(args)
    language = LANGUAGES[args.language]
    mix = parse_mix(args.mix, args.language) if args.mix else language.mix
    noise = Noise(get_lexicon(args), mix, args.error_rate, args.clean_share, args.seed)
    print(report(write_pairs(args, noise)))


if __name__ == "__main__":
    main()
