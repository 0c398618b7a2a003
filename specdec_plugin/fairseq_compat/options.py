"""The options of fairseq's tasks, models and losses: declaring, finding and replacing them."""

import argparse
import copy
import warnings
from dataclasses import field, fields, is_dataclass
from typing import Any, Mapping

from fairseq.dataclass.utils import convert_namespace_to_omegaconf, gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from hydra.core.config_store import ConfigStore

from ..errors import PluginError
from .hydra_train import checked


def option(default: Any, text: str, valid: Any = None) -> Any:
    """A dataclass field that becomes a command-line option.

    Args:
        default: its value where the option is not given.
        text: its help.
        valid: the values that a number may have, a :class:`..methods.options.Range`; None for any.
    """
    return field(default=default, metadata={"help": text, "valid": valid})


def fill_in(args: Any, defaults: Any) -> None:
    """Give the options of a model that ``args`` lack the values of the dataclass ``defaults``.

    Raises:
        PluginError: ``fairseq-hydra-train`` was given a value that the option does not have.
    """
    for name, value in vars(defaults).items():
        if not name.startswith("_"):
            setattr(args, name, checked(args, name, getattr(args, name, value), defaults))


def task_options(task: Any) -> Any:
    """The options of a fairseq task: legacy tasks keep them in ``args``, others in ``cfg``."""
    return task.args if task.cfg is None else task.cfg


def configuration_of(options: argparse.Namespace) -> Any:
    """fairseq's configuration from what its parser gives; half a second goes into it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Hydra's, of how fairseq calls it
        return convert_namespace_to_omegaconf(options)


def add_legacy_options(task: type, parser: Any, dataclass: Any) -> None:
    """Add the options of ``dataclass`` to the parser of a legacy task.

    fairseq adds those of a task's own dataclass itself.
    """
    if getattr(task, "__dataclass", None) is None:
        gen_parser_from_dataclass(parser, dataclass)


def with_own_options(task: Any) -> Any:
    """A copy of a task, with a copy of its options: changes leave those of ``task``."""
    changed = copy.copy(task)
    if task.cfg is None:
        changed.args = copy.copy(task.args)
    else:
        changed.cfg = copy.copy(task.cfg)
    return changed


def with_option(options: Any, name: str, value: Any) -> argparse.Namespace:
    """fairseq's generation options with one that is no text or number, which OmegaConf refuses."""
    if is_dataclass(options):
        known = {item.name: getattr(options, item.name) for item in fields(options)}
    else:
        known = dict(options) if isinstance(options, Mapping) else dict(vars(options))
    return argparse.Namespace(**{**known, name: value})


def set_task_dataclass(name: str, dataclass: Any) -> None:
    """Make ``dataclass`` the options of a task, wherever fairseq looks them up.

    Args:
        name: the task, which ``register_task`` has registered.
        dataclass: its options; a ``FairseqDataclass``.
    """
    setattr(TASK_REGISTRY[name], "__dataclass", dataclass)
    TASK_DATACLASS_REGISTRY[name] = dataclass
    node = dataclass()
    node._name = name
    ConfigStore.instance().store(name=name, group="task", node=node, provider="fairseq")


def flag_of(name: str) -> str:
    """The flag of an option, such as ``--max-len-a`` for ``max_len_a``."""
    return "--" + name.replace("_", "-")


class NoArchitecture:
    """What fairseq finds where ``--arch`` is not given; it would raise an error without words."""

    @staticmethod
    def add_args(parser: Any) -> None:
        """Raise a PluginError with the cure."""
        raise PluginError(
            "--arch is missing. Give the options that specdec-init-drafter printed for a drafter, "
            "--arch blockwise_transformer for proposal heads, or --arch transformer."
        )


def tell_missing_architecture() -> None:
    """Let fairseq-train tell in a sentence that ``--arch`` is missing (idempotent)."""
    ARCH_MODEL_REGISTRY[None] = NoArchitecture
