"""Sequence-level knowledge distillation, step 1: a teacher decodes one shard of the source."""

import argparse
import ast
import json
import os
import sys
import warnings
from typing import Any, Dict, Iterator, List, NoReturn, Optional, Sequence

import fairseq
import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq_cli.generate import get_symbols_to_strip_from_output
from omegaconf import OmegaConf
from shardfile import Manifest, check_count, open_shard, shard_bounds, shard_path
from textfiles import line_ranges, read_piece_lines, sha256, sha256_of_file

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.collector import freeze_imports
from specdec_plugin.fairseq_compat.dictionaries import check_data_folder, unreadable
from specdec_plugin.fairseq_compat.generation import check_generation
from specdec_plugin.fairseq_compat.options import flag_of
from specdec_plugin.methods.registry import decoding_config, given_flags, method_of
from specdec_plugin.progress import Progress

#: Handed to fairseq before the user's own options, which win.  The length limit
#: lies above the 290 pieces of filter_pairs.py: what it cuts is filtered out.
DEFAULTS = ["--max-len-b", "300", "--max-tokens", "4096"]

#: Our methods decode a batch as a queue, of which only the end leaves the processor idle.
QUEUED = ["--max-tokens", "16384"]

#: Decoding options besides ``--sampling`` that change the hypotheses.
CHANGING = (
    "copy_bias", "vocab_clusters", "verifier_dtype", "sentence_offset",
)  # fmt: skip

#: Decoding options that let drafts change the hypotheses, and with them all that drafts depend on.
RELAXING = ("top_beta", "acceptance", "min_block")

#: Lines of a shard of which most pieces have to be in the dictionary, if they are so many.
CHECKED_LINES, FEW_PIECES = 1000, 20

#: fairseq-generate's options that have no meaning here, with what to do instead.
REFUSED = {
    "prefix_size": "there is no reference to take a prefix from",
    "constraints": "lines of the source hold no constraints",
    "replace_unk": "the output is subword pieces",
    "lm_path": "only translation models are ensembled",
    "score_reference": "nothing would be decoded",
    "diverse_beam_groups": "one best line is wanted",
}

DESCRIPTION = """\
Decode shards of a file of source pieces with a teacher (or an ensemble).

The source is cut into --shards slices of lines.  Shards are independent: run
them in any order, on any machines, one or several in a process.  A shard that was killed resumes
when the same command is run again; one that is complete is left alone.
Then join them with merge_shards.py.

Options that are not listed here are fairseq-generate's and are handed to it:
DATA (the folder with the dictionaries), --path (a.pt, or a.pt:b.pt for an
ensemble), --task, -s, -t, --beam (default 5), --max-len-b (default 300),
--max-tokens (default 16384, for fairseq's own search 4096), --lenpen, --fp16, --cpu, ...

So are those of `specdec-generate --help`: --decoding METHOD, and with
--sampling a sample of each line, the same in any shards. The default is
--decoding beam, which finds what fairseq's search finds; --task translation
is fairseq's search itself."""

EXAMPLE = """\
example (shard 0 of 4; Spanish from English):
  python data_scripts/distill_shard.py bin/ -s en -t es --path teacher.pt \\
      --source pieces/train.en --output-dir shards/ --shard 0 --shards 4"""


def get_parser() -> argparse.ArgumentParser:
    """The options that are not fairseq's."""
    parser = argparse.ArgumentParser(
        prog="distill_shard.py",
        usage="%(prog)s DATA --path TEACHER --source FILE --output-dir DIR [options]",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--source", required=True, metavar="FILE", help="source lines as subword pieces (or .gz)"
    )
    parser.add_argument(
        "--output-dir", required=True, metavar="DIR", help="where the shards' files are"
    )
    parser.add_argument(
        "--shard",
        "--shard-id",
        type=int,
        nargs="+",
        default=[0],
        metavar="I",
        help="from 0, one after another (default 0)",
    )
    parser.add_argument(
        "--shards", "--num-shards", type=int, default=1, metavar="N", help="default 1"
    )
    parser.add_argument(
        "--wait",
        action="store_true",
        help="wait while another process decodes the shard, then resume its work",
    )
    return parser


def fairseq_config(arguments: Sequence[str]) -> Any:
    """fairseq-generate's configuration from its own command-line options."""
    method = _method(arguments)
    config = _parsed([*DEFAULTS, *method, *arguments])
    if getattr(config.task, "decoding", None) is not None:
        config = _parsed([*DEFAULTS, *QUEUED, *method, *arguments])
    for name, reason in REFUSED.items():
        if getattr(config.generation, name, None) not in (None, False, 0, -1, ""):
            raise PluginError(
                f"{flag_of(name)} cannot be used in distillation: {reason}. Leave it out."
            )
    _check_sampling(config)
    if not config.common_eval.path:
        raise PluginError("No teacher was given. Add --path teacher.pt.")
    return config


def _parsed(arguments: Sequence[str]) -> Any:
    """fairseq's configuration of a command line."""
    parser = options.get_generation_parser()
    parser.error = _refuse
    found = options.parse_args_and_arch(parser, input_args=list(arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Hydra's, of how fairseq calls it
        return convert_namespace_to_omegaconf(found)


def _refuse(message: str) -> NoReturn:
    """What argparse calls. It would print all of fairseq's options before the message."""
    raise PluginError(f"{message[:1].upper()}{message[1:]}. See distill_shard.py --help.")


def _method(arguments: Sequence[str]) -> List[str]:
    """The task and the method that a command line leaves open, as options.

    ``beam`` has the hypotheses of fairseq's search. In 16 bits they would be as good, but not
    always the same; and some options are fairseq's alone, or mean more to ``beam``.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for flag in ("--task", "--decoding"):
        parser.add_argument(flag)
    given, _ = parser.parse_known_args(arguments)
    if given.task is not None:
        return []
    task = ["--task", "specdec_translation"]
    if given.decoding is not None:
        return task
    plain = _parsed([*DEFAULTS, *task, *arguments])
    if plain.generation.sampling:
        return [*task, "--decoding", "greedy"]
    try:
        check_generation(plain.generation, "beam", None, ("nbest", "match_source_len"))
    except PluginError:
        return []
    return [] if plain.common.fp16 else [*task, "--decoding", "beam"]


def _check_sampling(config: Any) -> None:
    """Samples must be the same in a shard that is resumed, and one for each line."""
    if not config.generation.sampling:
        return
    if getattr(config.task, "decoding", None) is None:
        raise PluginError(
            "--sampling of fairseq's own search would give other lines when a shard is resumed: "
            "add --decoding METHOD and leave --task out, or leave --sampling out."
        )
    if config.generation.nbest != 1:
        raise PluginError(
            f"--nbest {config.generation.nbest} draws several samples, and a shard has one line "
            "for each line of the source. Leave it out, and use another --seed for each copy."
        )


class Teacher:
    """The task, the models and the search that turn source lines into hypotheses."""

    def __init__(self, config: Any) -> None:
        self.config = config
        self.paths: List[str] = utils.split_paths(config.common_eval.path)
        self.hashes = [sha256_of_file(path) for path in self.paths]
        self.task = _setup_task(config)
        self.use_cuda = torch.cuda.is_available() and not config.common.cpu
        self.generator: Any = None

    def load(self) -> None:
        """Load the models, which :meth:`translate` needs, unless they are."""
        if self.generator is not None:
            return
        config = self.config
        try:
            self.models, _ = checkpoint_utils.load_model_ensemble(
                self.paths,
                arg_overrides=json.loads(_overrides(config)),
                task=self.task,
            )
        except RuntimeError as error:
            if "size mismatch" not in str(error):
                raise
            raise PluginError(
                f"{config.common_eval.path} does not fit the dictionaries in {config.task.data}. "
                "Give the folder with the dictionaries that the teacher was trained with."
            ) from None
        for model in self.models:
            if config.common.fp16:
                model.half()
            if self.use_cuda:
                model.cuda()
            model.prepare_for_inference_(config)
        self.generator = self.task.build_generator(self.models, config.generation)
        self.source_limit = _source_limit(self.task, self.models)

    def encode(self, lines: Sequence[str]) -> List[torch.Tensor]:
        """Token ids with end of sentence; the dictionary does not grow."""
        encoded, _ = self.task.get_interactive_tokens_and_lengths(lines, lambda line: line)
        return list(encoded)

    def translate(self, tokens: List[torch.Tensor], lines: Sequence[int]) -> List[str]:
        """The best hypothesis for each source of one batch, as pieces, in their order.

        Args:
            tokens: the sources.
            lines: their numbers in the whole source, from 0, which samples depend on.
        """
        dataset = self.task.build_dataset_for_inference(tokens, [len(ids) for ids in tokens])
        sample = dataset.collater([dataset[index] for index in range(len(tokens))])
        if self.use_cuda:
            sample = utils.move_to_cuda(sample)
        order = sample["id"].tolist()
        sample["id"] = torch.tensor([lines[index] for index in order])
        found = self.task.inference_step(self.generator, self.models, sample)
        texts = [""] * len(tokens)
        ignored = get_symbols_to_strip_from_output(self.generator)
        for index, hypotheses in zip(order, found):
            ids = hypotheses[0]["tokens"].int().cpu()
            texts[index] = self.task.target_dictionary.string(ids, extra_symbols_to_ignore=ignored)
        return texts

    def settings(self) -> Dict[str, Any]:
        """What the hypotheses depend on, apart from the source."""
        config = self.config
        generation = OmegaConf.to_container(config.generation, resolve=True)
        drawn = {"seed": config.common.seed} if config.generation.sampling else {}
        return {
            **drawn,
            **_changing(self.task, config.dataset),
            "teachers": self.hashes,
            "dictionaries": [
                _dictionary_hash(self.task.source_dictionary),
                _dictionary_hash(self.task.target_dictionary),
            ],
            # The plugin's tasks find what fairseq's of the same name find.
            "task": str(config.task._name).removeprefix("specdec_"),
            "generation": json.loads(json.dumps(generation, default=str)),
            "model_overrides": _overrides(config),
            "fp16": bool(config.common.fp16),
        }


def _changing(task: Any, batches: Any) -> Dict[str, Any]:
    """The options that change the hypotheses, where they are given; files by hash.

    Args:
        task: has the options of decoding.
        batches: fairseq's options of batches, on which it depends how much is drafted.
    """
    decoding = decoding_config(task)
    given = given_flags(decoding)
    relaxed = any(name in given for name in RELAXING)
    if decoding.decoding is None or (method_of(decoding).verifies and not relaxed):
        given = {name: value for name, value in given.items() if name in CHANGING}
    else:
        given["decoding"] = decoding.decoding
    if relaxed:
        given |= {"max_tokens": batches.max_tokens, "batch_size": batches.batch_size}
    told = {name: str(value) for name, value in given.items()}
    return {
        flag_of(name): sha256_of_file(value) if os.path.isfile(value) else value
        for name, value in told.items()
    }


def _overrides(config: Any) -> str:
    """``--model-overrides`` as JSON."""
    text = config.common_eval.model_overrides
    try:
        return json.dumps(dict(ast.literal_eval(text or "{}")), sort_keys=True)
    except (ValueError, SyntaxError, TypeError):
        raise PluginError(
            f"--model-overrides {text} is not a dictionary. Write for instance \"{{'a': 1}}\"."
        ) from None


def _setup_task(config: Any) -> Any:
    """fairseq's task over the dictionaries in DATA."""
    task = config.task
    check_data_folder(task, hasattr(task, "source_lang") and hasattr(task, "target_lang"))
    try:
        return tasks.setup_task(task)
    except FileNotFoundError as error:  # of one of fairseq's own tasks
        raise unreadable(error.filename, error) from None


def _dictionary_hash(dictionary: Dictionary) -> str:
    return sha256("\n".join(dictionary.symbols).encode("utf-8"))


def _source_limit(task: Any, models: Sequence[Any]) -> int:
    """The most source tokens, end of sentence included, that all models can read."""
    limits = utils.resolve_max_positions(
        task.max_positions(), *[model.max_positions() for model in models]
    )
    return int(limits if isinstance(limits, (int, float)) else limits[0])


def truncated(
    tokens: List[torch.Tensor], limit: int, first: int, path: str
) -> Iterator[torch.Tensor]:
    """Each source, cut to ``limit`` tokens with its end of sentence; warns of each that is cut."""
    for number, ids in enumerate(tokens, start=first + 1):
        if len(ids) > limit:
            Progress.write(
                f"warning: line {number} of {path} has {len(ids) - 1} pieces and was truncated "
                f"to {limit - 1}, the most that the teacher reads.",
                file=sys.stderr,
            )
            ids = torch.cat([ids[: limit - 1], ids[-1:]])
        yield ids


def check_known(lines: Sequence[str], dictionary: Dictionary, path: str) -> None:
    """Refuse raw text, or pieces of another subword model, before it is decoded."""
    pieces = [piece for line in lines for piece in line.split()]
    unknown = sum(piece not in dictionary for piece in pieces)
    if len(pieces) >= FEW_PIECES and 2 * unknown > len(pieces):
        raise PluginError(
            f"{path} is no text in the teacher's pieces: {unknown:,} of {len(pieces):,} are not in "
            "its dictionary. Split it with the teacher's subword model (prepare_subwords.py)."
        )


def batches(
    lengths: Sequence[int], max_tokens: int, max_sentences: Optional[int], alike: bool
) -> List[List[int]]:
    """Indices of all sentences in batches of about the same length, the longest first.

    A sentence longer than ``max_tokens`` is a batch of its own: unlike fairseq's
    iterators, this one never loses or refuses a sentence.

    Args:
        lengths: tokens of each sentence.
        max_tokens: the most tokens of a batch, padding included.
        max_sentences: the most sentences of a batch.
        alike: batches of exactly one length only.
    """
    result: List[List[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        batch = result[-1] if result else []
        fits = (
            batch
            and (len(batch) + 1) * lengths[batch[0]] <= max_tokens
            and (max_sentences is None or len(batch) < max_sentences)
            and (not alike or lengths[index] == lengths[batch[0]])
        )
        if fits:
            batch.append(index)
        else:
            result.append([index])
    return result


def decode_shard(
    teacher: Teacher, lines: List[str], manifest: Manifest, path: str, wait: bool = False
) -> None:
    """Decode what is missing in the shard's file ``path``.

    Batches are made of the whole shard, whatever an earlier run has done, so a
    resumed shard computes exactly what an uninterrupted one does. With ``wait``,
    another process that is decoding it ends first.
    """
    first, config = manifest.first, teacher.config
    lines = lines[manifest.first : manifest.end]
    check_known(lines[:CHECKED_LINES], teacher.task.source_dictionary, manifest.about["source"])
    with open_shard(path, manifest, wait) as writer:
        done = {number - first for number, _ in writer.done}
        empty = [index for index, line in enumerate(lines) if not line.split()]
        if not done.issuperset(empty):
            writer.append([first + index for index in empty], [""] * len(empty))
            done.update(empty)
        if len(done) == len(lines):
            print(f"{path} is complete: {len(lines):,} lines.")
            return
        teacher.load()
        tokens = list(
            truncated(teacher.encode(lines), teacher.source_limit, first, manifest.about["source"])
        )
        plan = batches(
            [len(ids) for ids in tokens],
            config.dataset.max_tokens,
            config.dataset.batch_size,
            # fairseq's limits that depend on the source take the longest of the
            # batch: with one length in a batch, each line has its own limit.
            alike=config.generation.max_len_a != 0 or config.generation.match_source_len,
        )
        hidden = config.common.no_progress_bar
        with Progress(total=len(lines), initial=len(done), unit="line", disable=hidden) as bar:
            for batch in plan:
                batch = [index for index in batch if index not in done]
                if batch:
                    numbers = [first + index for index in batch]
                    texts = teacher.translate([tokens[index] for index in batch], numbers)
                    writer.append(numbers, texts)
                    bar.add(len(batch), tokens=sum(len(text.split()) + 1 for text in texts))
    print(f"{path} is complete: {len(lines):,} lines.")


def make_manifest(
    teacher: Teacher, source: str, lines: List[str], shard: int, shards: int
) -> Manifest:
    """What this shard is, for its file."""
    first, end = shard_bounds(len(lines), shard, shards)
    settings = {
        "source": {"sha256": sha256("\n".join(lines).encode("utf-8")), "lines": len(lines)},
        **teacher.settings(),
    }
    about = {
        "source": os.path.basename(source),
        "teachers": [os.path.basename(path) for path in teacher.paths],
        "shard": shard,
        "shards": shards,
        "max_tokens": teacher.config.dataset.max_tokens,
        "batch_size": teacher.config.dataset.batch_size,
        "device": "cuda" if teacher.use_cuda else "cpu",
        "fairseq": str(fairseq.__version__),
        "torch": str(torch.__version__),
    }
    return Manifest(settings, first, end, about)


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args, rest = get_parser().parse_known_args(argv)
    for shard in args.shard:
        if not 0 <= shard < args.shards:
            raise PluginError(
                f"--shard {shard} --shards {args.shards} names no shard. Shards count from 0 to "
                "one less than --shards."
            )
    check_count(args.output_dir, args.shards)
    config = fairseq_config(rest)
    freeze_imports()
    lines = read_piece_lines(args.source)
    if not lines:
        raise PluginError(f"{args.source} holds no line. Give the pieces of a training text.")
    teacher = Teacher(config)
    for shard in args.shard:
        manifest = make_manifest(teacher, args.source, lines, shard, args.shards)
        path = shard_path(args.output_dir, shard, args.shards)
        told = line_ranges(range(manifest.first, manifest.end)) or "none"
        print(f"Shard {shard} of {args.shards}: lines {told} of {args.source}")
        decode_shard(teacher, lines, manifest, path, args.wait)


if __name__ == "__main__":
    main()
