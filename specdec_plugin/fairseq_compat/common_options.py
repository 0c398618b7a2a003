"""fairseq's common options, which it keeps from tasks, as far as decoding needs them."""

from dataclasses import dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from .options import task_options

#: fairseq's own, where ``--seed`` is not typed.
DEFAULT_SEED = 1


@dataclass
class CommonConfig(FairseqDataclass):
    """Lets a task read them. Where a program makes the configuration, the references stay."""

    seed: int = II("common.seed")
    no_progress_bar: bool = II("common.no_progress_bar")


def seed_of(task: Any, options: Any) -> int:
    """The seed: ``seed`` of the search, which fairseq's hub passes on, else that of the task.

    Args:
        task: fairseq's task.
        options: fairseq's generation options.
    """
    seed = getattr(options, "seed", None)
    if seed is None:
        seed = getattr(task_options(task), "seed", None)
    return DEFAULT_SEED if seed is None or isinstance(seed, str) else int(seed)


def shows_progress(task: Any) -> bool:
    """Whether a command line decodes, without ``--no-progress-bar``.

    Args:
        task: fairseq's task.
    """
    return getattr(task_options(task), "no_progress_bar", None) is False
