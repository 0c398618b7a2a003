"""fairseq's hub: options of a task that fairseq would drop without a word."""

from dataclasses import fields
from typing import Any, Mapping

from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import DictConfig, open_dict

from ..errors import PluginError

#: How the names of our tasks with ``--decoding`` begin.
PREFIX = "specdec_"


def keep_task_overrides(state: Mapping[str, Any], overrides: Mapping[str, Any]) -> None:
    """Put the options of ``from_pretrained`` into a checkpoint's configuration.

    fairseq changes only options that the checkpoint has already. So ``decoding`` was dropped, and
    ``task`` with it, when another task had trained the model. ``state`` is what fairseq read; its
    configuration is changed in place.

    Raises:
        PluginError: ``decoding`` is given for a task that does not have it.
    """
    cfg = state.get("cfg")
    if cfg is None:  # an old checkpoint, whose options take every name
        name = overrides.get("task", getattr(state.get("args"), "task", None))
    else:
        name = overrides.get("task", getattr(cfg.task, "_name", None))
        if name in TASK_DATACLASS_REGISTRY and isinstance(cfg.task, DictConfig):
            known = {item.name for item in fields(TASK_DATACLASS_REGISTRY[name])}
            with open_dict(cfg):
                cfg.task._name = name
                cfg.task.update({key: overrides[key] for key in known & {*overrides}})
    if overrides.get("decoding") is not None and not str(name).startswith(PREFIX):
        raise PluginError(
            f"decoding={str(overrides['decoding'])!r} has no effect with task={name!r}, which is "
            f"fairseq's own: pass task='{PREFIX}translation'."
        )
