"""The options of fairseq's tasks, models and losses: declaring and finding them."""

from argparse import Namespace
from dataclasses import field
from typing import Any


def option(default: Any, text: str) -> Any:
    """A dataclass field that fairseq makes a command-line option of, with this help."""
    return field(default=default, metadata={"help": text})


def fill_in(args: Namespace, defaults: Any) -> None:
    """Give the options of a model that ``args`` lack the values of the dataclass ``defaults``."""
    for name, value in vars(defaults).items():
        if not name.startswith("_"):
            setattr(args, name, getattr(args, name, value))


def task_options(task: Any) -> Any:
    """The options of a fairseq task: legacy tasks keep them in ``args``, others in ``cfg``."""
    return task.args if task.cfg is None else task.cfg


def flag_of(name: str) -> str:
    """The flag of an option, such as ``--max-len-a`` for ``max_len_a``."""
    return "--" + name.replace("_", "-")
