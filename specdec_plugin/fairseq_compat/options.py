"""Where fairseq keeps the options of a task, and how a command line names them."""

from typing import Any


def task_options(task: Any) -> Any:
    """The options of a fairseq task: legacy tasks keep them in ``args``, others in ``cfg``."""
    return task.args if task.cfg is None else task.cfg


def flag_of(name: str) -> str:
    """The flag of an option, such as ``--max-len-a`` for ``max_len_a``."""
    return "--" + name.replace("_", "-")
