"""The command line of ``specdec-bench``: what it takes, and what it refuses."""

import argparse
import logging
import math
from typing import Any, Callable, Dict, List, Optional, Sequence

from sacrebleu.metrics import BLEU

from ...engine.threads import measured_threads, processors
from ...errors import PluginError
from ...fairseq_compat.generation import check_generation
from ...fairseq_compat.options import flag_of
from ...fairseq_compat.tasks import TASK, add_task_options
from ...methods.registry import all_flags
from ..options import add_device, add_flag, add_lengths, add_prefix_size, add_split
from .methods import (
    BASELINES,
    CLUSTERED,
    CLUSTERED_DRAFTS,
    GREEDY,
    HEADS,
    OF_THE_NAME,
    SUFFIXES,
    beam_of,
    entries,
)
from .peers import PEERS
from .sweeps import SWEEPS, directions
from .timing import TURN

logger = logging.getLogger(__name__)

EXAMPLE = """examples:
  specdec-bench data-bin -s en -t es --path verifier.pt --drafter-path drafter.pt \\
      --post-process sentencepiece --reference test.es --threads 2 --output results/
  specdec-bench data-bin -s en -t es --path verifier.pt --drafter-path drafter.pt \\
      --sweep k --block-sizes 2,4,6,8,10 --gen-subset valid --reference valid.es --output k/
  specdec-bench data-bin -s en -t es --path verifier.pt --sweep threads --threads 1,2,4,8 \\
      --methods "fairseq beam 1,greedy,jacobi,gs-jacobi,hybrid-jacobi" --output threads/
  specdec-bench data-bin -s en -t es --path verifier.pt --vocab-clusters clusters.pt \\
      --methods "greedy,greedy clustered" --reference test.es --output clusters/
  specdec-bench data-bin -s src -t tgt --path corrector.pt --edit-ratio --examples 7 \\
      --methods "fairseq beam 5,fairseq beam 1,greedy,input-guided" --output correction/
  specdec-bench data-bin -s en -t es --path verifier.pt --sweep batch \\
      --methods "fairseq beam 5,beam,specdec beam" --output beams/
  specdec-bench data-bin -s en -t es --path verifier.pt --sampling --sampling-topk 10 \\
      --methods "fairseq beam 1,greedy,specdec self" --output samples/
  specdec-bench data-bin --task specdec_translation_multi_simple_epoch --decoder-langtok \\
      --encoder-langtok src --lang-pairs en-es,es-en --path multilingual.pt \\
      --sweep directions --reference raw/test.{source}-{target}.{target} \\
      --methods "fairseq beam 1,greedy,jacobi,gs-jacobi,hybrid-jacobi" --output directions/
"""
#: SpecDec++ as the papers run it for speed.
SPECDEC_PP = {"top_beta": 5, "tolerance": 3.0}


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="specdec-bench",
        description="Decode the same sentences with every method, taking turns, and report "
        "latency, speed-ups, accepted tokens, BLEU, repetition, memory, operations, time by part "
        "and how many hypotheses equal those of greedy decoding, or of fairseq's beam search.",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_models(parser)
    _add_sentences(parser)
    _add_decoding(parser.add_argument_group("decoding, as in fairseq-generate"))
    _add_measuring(parser.add_argument_group("measuring"))
    _add_edits(parser.add_argument_group("what is edited (with batches of one sentence)"))
    _add_sweeps(parser.add_argument_group("sweeps"))
    return parser


def add_models(parser: Any) -> None:
    """Add the options of models and data, and of methods of the user's own."""
    parser.add_argument("data", help="binarised data folder")
    add_task_options(parser)
    parser.add_argument("--path", required=True, help="verifier checkpoint (several: a.pt:b.pt)")
    parser.add_argument(
        flag_of(HEADS),
        help="proposal heads alone, for blockwise; default: those of the model in --path",
    )
    parser.add_argument(
        "--user-dir", help="folder with methods of your own, as in fairseq-generate"
    )


def _add_sentences(parser: Any) -> None:
    names = ", ".join([*BASELINES, *entries()])
    parser.add_argument(
        "--methods",
        default="fairseq beam 5,fairseq beam 1,greedy,specdec,specdec++",
        help=f"comma-separated, of: {names} (default: %(default)s)",
    )
    parser.add_argument(
        "--peer",
        action="append",
        default=[],
        choices=list(PEERS),
        help="also convert the verifier for this other engine and time it beside the methods, "
        "with their numbers of beams; may be repeated (pip install 'specdec-plugin[peers]'; "
        "default: none)",
    )
    add_split(parser, "split to decode")
    parser.add_argument(
        "--reference",
        help="raw references, a line a sentence; {source} and {target} stand for the languages "
        "(default: no BLEU)",
    )
    parser.add_argument(
        "--bleu-tokenize",
        default="13a",
        help="sacreBLEU's --tokenize, for instance zh for Chinese; or by target language, such as "
        "13a,zh=zh,ja=char (default: %(default)s)",
    )


def _add_decoding(group: Any) -> None:
    """An option for each flag of the registered methods."""
    for name, declared in all_flags().items():
        if name not in OF_THE_NAME:
            default = SPECDEC_PP.get(name, declared.default)
            note = "; here for specdec++, and the first for --acceptance top-k"
            add_flag(group, declared, default, note if name in SPECDEC_PP else "", default=default)
    add_generation(group)
    add_prefix_size(group)
    group.add_argument("--post-process", default="sentencepiece", help="(default: %(default)s)")


def add_generation(group: Any) -> None:
    """Add fairseq's options of :func:`generation_of`, but for the seed."""
    add_lengths(group)
    group.add_argument(
        "--sampling",
        action="store_true",
        help="every method draws a sample of each sentence; 'fairseq beam 1' is then fairseq's own "
        "sampling",
    )
    for name, kind, default, text in (
        ("--sampling-topk", int, -1, "draw from so many symbols"),
        ("--sampling-topp", float, -1.0, "draw from symbols of this probability together"),
        ("--temperature", float, 1.0, "divides scores before samples are drawn"),
    ):
        group.add_argument(name, type=kind, default=default, help=f"{text} (default: %(default)s)")


def generation_of(options: argparse.Namespace) -> Dict[str, Any]:
    """fairseq's generation options, the same for all methods."""
    found = {"max_len_a": options.max_len_a, "max_len_b": options.max_len_b}
    if options.sampling:
        names = ("sampling", "sampling_topk", "sampling_topp", "temperature", "seed")
        found.update({name: getattr(options, name) for name in names})
    return found


def _add_measuring(group: Any) -> None:
    group.add_argument(
        "--sentences",
        type=int,
        help="decode only about so many, in full batches that are spread over the split",
    )
    group.add_argument("--batch-size", type=int, default=1, help="sentences a batch (default: 1)")
    group.add_argument(
        "--repeats",
        type=int,
        default=1,
        help="passes over the sentences; of each batch's times the least counts (default: 1)",
    )
    group.add_argument(
        "--turn",
        type=int,
        default=TURN,
        help="batches that a method decodes before the next one's turn; with 1 every method "
        "begins each batch with the weights of another in the processor's cache "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--pause",
        type=float,
        default=0.0,
        metavar="MS",
        help="milliseconds without work before each batch, as where sentences come now and then: "
        "caches and processors have to wake up (default: 0)",
    )
    group.add_argument(
        "--threads",
        type=values_of(int),
        default=str(measured_threads()),
        help="CPU threads; with --sweep threads several numbers, such as 1,2,4 (default: "
        "OMP_NUM_THREADS, else 2)",
    )
    group.add_argument("--seed", type=int, default=1, help="of random numbers (default: 1)")
    add_device(group)
    group.add_argument(
        "--output", help="folder for results.json, results.md, plots and what --resume needs"
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="resume the run with the same options that was interrupted in --output",
    )


def _add_edits(group: Any) -> None:
    group.add_argument(
        "--edit-ratio",
        action="store_true",
        help="for tasks whose output is much like the input, such as error correction and text "
        "simplification: also a table and a plot by edit ratio, the edit distance between source "
        "and greedy output divided by the length of the source",
    )
    group.add_argument(
        "--examples",
        type=int,
        metavar="N",
        help="also show N sentences, spread over edit ratios, as each method that drafts decodes "
        "them: what was drafted and accepted, and what the verifier chose token by token",
    )


def _add_sweeps(group: Any) -> None:
    group.add_argument(
        "--sweep",
        choices=SWEEPS,
        help="k: every method that drafts blocks with each of --block-sizes; beta-tau: specdec++ "
        "with each pair of --betas and --tolerances; jacobi: gs-jacobi and hybrid-jacobi with "
        "each window, initial guess, n-gram pool or none, and --block-sizes; batch: everything "
        "with each of --batch-sizes; threads: everything with each of --threads; directions: "
        "everything in each of --directions",
    )
    group.add_argument(
        "--directions",
        help="of one model, such as en-es,es-en, instead of -s and -t (default: --lang-pairs)",
    )
    for name, kind, default in (
        ("--block-sizes", int, "2,4,6,8,10"),
        ("--betas", int, "1,3,5"),
        ("--tolerances", float, "1,2,3"),
        ("--batch-sizes", int, "1,8,32"),
    ):
        group.add_argument(
            name, type=values_of(kind), default=default, help="(default: %(default)s)"
        )


def values_of(kind: Callable[[str], Any]) -> Callable[[str], List[Any]]:
    """A reader of values joined by commas, without repetitions and in rising order."""

    def read(text: str) -> List[Any]:
        return sorted({kind(value) for value in text.split(",")})

    read.__name__ = f"list of {kind.__name__}"
    return read


def method_names(options: argparse.Namespace) -> List[str]:
    """What ``--methods`` names; PluginError for what does not exist or comes twice."""
    return names_among(options.methods, [*BASELINES, *entries()])


def names_among(text: str, known: Sequence[str]) -> List[str]:
    """The names of ``--methods``, joined by commas; PluginError as for :func:`method_names`."""
    names = [name.strip() for name in text.split(",")]
    unknown = sorted({*names} - {*known})
    if unknown:
        raise PluginError(
            f"--methods {unknown[0]}: there is no such method. Known: {', '.join(known)}."
        )
    if len({*names}) < len(names):
        raise PluginError(f"--methods {text} names a method twice; name each once.")
    return names


def check_options(options: argparse.Namespace) -> None:
    """Refuse what cannot be measured.

    Raises:
        PluginError: it names the option and the cure.
    """
    for direction in directions(options):
        tokenizer_of(options.bleu_tokenize, direction.target)
    for name in ("batch_size", "repeats", "turn", "sentences", "examples"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise PluginError(f"{flag_of(name)} {value}: give at least 1.")
    if not 0 <= options.pause < math.inf:
        raise PluginError(f"--pause {options.pause:g}: give a number of milliseconds from 0 on.")
    for name in ("block_sizes", "betas", "batch_sizes", "threads"):
        if min(getattr(options, name)) < 1:
            raise PluginError(f"{flag_of(name)}: give numbers of at least 1.")
    if options.resume and options.output is None:
        raise PluginError(
            "--resume continues what is in the folder --output; name the folder of the "
            "interrupted run."
        )
    if options.sweep == "batch" and options.batch_size != 1:
        raise PluginError(
            f"--batch-size {options.batch_size} would have no effect with --sweep batch; "
            "give --batch-sizes instead."
        )
    _check_threads(options)
    names = method_names(options)
    check_clusters(options, names)
    check_samples(options, names)
    for name in ("edit_ratio", "examples"):
        if getattr(options, name):
            _check_edits(options, flag_of(name))


def tokenizer_of(text: str, language: Optional[str]) -> str:
    """sacreBLEU's tokenizer for a target language, of the value of ``--bleu-tokenize``.

    Raises:
        PluginError: sacreBLEU has no tokenizer of a name in it.
    """
    named = {own: name for own, _, name in (each.rpartition("=") for each in text.split(","))}
    unknown = {*named.values()} - {*BLEU.TOKENIZERS}
    if unknown:
        raise PluginError(
            f"--bleu-tokenize {text}: sacreBLEU has no tokenizer {min(unknown)}. It has "
            f"{', '.join(BLEU.TOKENIZERS)}."
        )
    return named.get(str(language), named.get("", "13a"))


def _check_edits(options: argparse.Namespace, flag: str) -> None:
    if options.task != TASK:
        raise PluginError(
            f"{flag} compares source and output symbol by symbol, as for corrections: leave it out "
            f"with --task {options.task}."
        )
    if options.batch_size != 1 or options.sweep in ("batch", "threads", "directions"):
        raise PluginError(
            f"{flag} needs the time of each sentence, under one condition: leave out --batch-size, "
            "--sweep directions, --sweep batch and --sweep threads."
        )
    names = method_names(options)
    if not {*GREEDY} & {*names}:
        raise PluginError(
            f"{flag} compares sentences with the output of greedy decoding: add greedy to "
            "--methods."
        )
    drafting = [name for name in names if name not in GREEDY and beam_of(name) == 1]
    if flag == "--examples" and not drafting:
        raise PluginError(
            f"{flag} shows what was drafted, but none of these --methods drafts: add one that "
            "does, such as input-guided."
        )


def check_clusters(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Refuse methods with clusters without a file of them, and the other way round."""
    for suffix, plain in ((CLUSTERED, "greedy"), (CLUSTERED_DRAFTS, "specdec self")):
        path = getattr(options, SUFFIXES[suffix])
        flag = flag_of(SUFFIXES[suffix])
        named = [name for name in names if name.endswith(suffix)]
        if named and path is None:
            raise PluginError(
                f"--methods {named[0]} needs clusters: add {flag} FILE (specdec-cluster-vocab "
                "writes one)."
            )
        if path is not None and not named:
            raise PluginError(
                f"{flag} {path} would have no effect: add '{plain}{suffix}' or another method of "
                "that kind to --methods."
            )


def check_samples(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Refuse options of samples without ``--sampling``, and what cannot be drawn."""
    for name, default in (("sampling_topk", -1), ("sampling_topp", -1.0), ("temperature", 1.0)):
        value = getattr(options, name)
        if value != default and not options.sampling:
            raise PluginError(
                f"{flag_of(name)} {value} is about samples: add --sampling, or leave it out."
            )
    if not options.sampling:
        return
    for name in names:
        if beam_of(name) > 1:
            raise PluginError(
                f"--sampling draws a sample of each sentence, and '{name}' has {beam_of(name)} "
                "beams: name other --methods, such as 'greedy,specdec self'."
            )
    wanted = argparse.Namespace(**generation_of(options))
    check_generation(wanted, "greedy", honours={"sampling"}, typed=True)


def _check_threads(options: argparse.Namespace) -> None:
    counts, several = options.threads, options.sweep == "threads"
    if len(counts) > 1 and not several:
        raise PluginError(
            f"--threads {','.join(map(str, counts))}: give one number, or add --sweep threads to "
            "decode with one after the other."
        )
    if several and options.peer:
        raise PluginError(
            f"--peer {options.peer[0]} keeps the number of threads that it was loaded with; leave "
            "it out, or run without --sweep threads once for each number."
        )
    free = processors()
    if max(counts) > free:
        logger.warning(
            f"--threads {max(counts)}: this process may use {free:,} processors. Threads that "
            "share one wait for each other, so that more of them make decoding slower."
        )
