"""Setting up fairseq's tasks outside of fairseq's programs, with the options that they take."""

import argparse
from typing import Any, Dict, Mapping

from fairseq.tasks import TASK_REGISTRY, setup_task

from ..errors import PluginError
from .options import flag_of

#: The task of two languages.
TASK = "specdec_translation"
#: Options of single tasks, with a value: their help.
_VALUES = {
    "langs": "mBART, multilingual: all languages of the model, in the order of its training",
    "lang_pairs": "multilingual: the directions of the training, such as en-es,es-en",
    "lang_dict": "multilingual: a file with a language a line, instead of --langs",
    "encoder_langtok": "multilingual: src or tgt, the language whose symbol sources have",
    "lang_tok_style": "multilingual: how symbols of languages look",
    "config_yaml": "speech: the configuration in the data folder",
}
#: Options of single tasks, without a value: their help.
_SWITCHES = {
    "decoder_langtok": "multilingual: targets begin with the symbol of their language",
    "lang_tok_replacing_bos_eos": "multilingual: these symbols replace those of begin and end",
    "prepend_bos": "mBART: sentences begin with <s>",
}
#: All of them, by name.
TASK_OPTIONS = ("source_lang", "target_lang", *_VALUES, *_SWITCHES)


def add_task_options(parser: Any) -> None:
    """Add ``--task``, the languages, and options of single tasks to a program's parser."""
    parser.add_argument("--source-lang", "-s", help="source language (none for speech)")
    parser.add_argument("--target-lang", "-t", help="target language (none for speech)")
    group = parser.add_argument_group("task, as in fairseq-generate")
    names = sorted(name for name in TASK_REGISTRY if name.startswith("specdec_"))
    group.add_argument("--task", choices=names, default=TASK, help="(default: %(default)s)")
    for name, text in _VALUES.items():
        group.add_argument(flag_of(name), help=text)
    for name, text in _SWITCHES.items():
        group.add_argument(flag_of(name), action="store_true", help=text)


def given_task_options(options: Any) -> Dict[str, Any]:
    """Those of :func:`add_task_options` that were given, but for the task's name."""
    values = {name: getattr(options, name) for name in TASK_OPTIONS}
    return {name: value for name, value in values.items() if value}


def set_up_task(name: str, data: str, options: Mapping[str, Any]) -> Any:
    """A task as ``fairseq-generate DATA --task NAME`` sets it up.

    Args:
        name: of the task.
        data: its folder.
        options: of the task, by name, such as ``lang_pairs="en-es,es-en"`` for ``--lang-pairs``;
            None is as not given.

    Raises:
        PluginError: the task, an option of it, or a file does not exist, or they contradict each
            other.
    """
    if name not in TASK_REGISTRY:
        known = ", ".join(sorted(each for each in TASK_REGISTRY if each.startswith("specdec_")))
        raise PluginError(f"There is no task {name}. Those that decode are {known}.")
    args = _parsed(name, data, {key: each for key, each in options.items() if each is not None})
    if hasattr(args, "lang_pairs") and None in (args.source_lang, args.target_lang):
        raise PluginError(
            f"--task {name} decodes one direction: give --source-lang and --target-lang."
        )
    try:
        return setup_task(args)
    except FileNotFoundError as error:
        raise PluginError(
            f"{error}. Name a folder with the dictionaries that the model was trained with."
        ) from error
    except PluginError:
        raise
    except ValueError as error:  # of --lang-pairs and --langs
        raise PluginError(f"--task {name}: {error}") from error


def _parsed(name: str, data: str, options: Mapping[str, Any]) -> argparse.Namespace:
    """What the task's own parser makes of its options."""
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False, add_help=False)
    # Values that fairseq's command lines would fill in from their other groups.
    parser.set_defaults(
        task=name, train_subset="train", dataset_impl=None, required_seq_len_multiple=1, seed=1
    )
    TASK_REGISTRY[name].add_args(parser)
    words = [
        f"{flag_of(key)}={value}" for key, value in options.items() if not isinstance(value, bool)
    ]
    try:
        args, unknown = parser.parse_known_args([data, *words])
    except argparse.ArgumentError as error:
        raise PluginError(f"--task {name}: {error}.") from error
    switches = {key: value for key, value in options.items() if isinstance(value, bool)}
    unknown += [flag_of(key) for key in switches if not hasattr(args, key)]
    if unknown:
        flag, *_ = unknown[0].split("=")
        raise PluginError(
            f"--task {name} has no option {flag}: leave it out, or name another task."
        )
    vars(args).update(switches)
    return args
