"""Where fairseq keeps the options of a task."""

from typing import Any


def task_options(task: Any) -> Any:
    """What a fairseq task was set up with: legacy tasks keep it in ``args``, others in ``cfg``."""
    return task.args if task.cfg is None else task.cfg
