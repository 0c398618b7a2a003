"""The teacher of a distillation: fairseq-generate's options, and the models that decode by them."""

import argparse
import ast
import json
import os
from typing import Any, Dict, List, NoReturn, Sequence

import torch
from fairseq import checkpoint_utils, options, tasks, utils
from fairseq.data import Dictionary
from fairseq_cli.generate import get_symbols_to_strip_from_output
from omegaconf import OmegaConf
from textfiles import sha256, sha256_of_file

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.dictionaries import check_data_folder, unreadable
from specdec_plugin.fairseq_compat.generation import check_generation
from specdec_plugin.fairseq_compat.options import configuration_of, flag_of
from specdec_plugin.methods.registry import decoding_config, given_flags, method_of

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

#: fairseq-generate's options that have no meaning here, with what to do instead.
REFUSED = {
    "prefix_size": "there is no reference to take a prefix from",
    "constraints": "lines of the source hold no constraints",
    "replace_unk": "the output is subword pieces",
    "lm_path": "only translation models are ensembled",
    "score_reference": "nothing would be decoded",
    "diverse_beam_groups": "one best line is wanted",
}


def fairseq_config(arguments: Sequence[str]) -> Any:
    """fairseq-generate's configuration from its own command-line options."""
    method = _method(arguments)
    found = _parsed([*DEFAULTS, *method, *arguments])
    if getattr(found, "decoding", None) is not None:
        found = _parsed([*DEFAULTS, *QUEUED, *method, *arguments])
    config = configuration_of(found)
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
    """fairseq's options of a command line."""
    parser = options.get_generation_parser()
    parser.error = _refuse
    return options.parse_args_and_arch(parser, input_args=list(arguments))


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
    if plain.sampling:
        return [*task, "--decoding", "greedy"]
    try:
        check_generation(plain, "beam", None, ("nbest", "match_source_len"))
    except PluginError:
        return []
    return [] if plain.fp16 else [*task, "--decoding", "beam"]


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
