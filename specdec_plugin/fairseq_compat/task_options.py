"""Replacing the options of a registered task, when another decoding method brings more."""

from typing import Any

from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from hydra.core.config_store import ConfigStore


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
