"""Options in messages are named as they were given: ``min_len`` in Python, else ``--min-len``."""

import contextlib
import functools
import re
from dataclasses import fields
from typing import Any, FrozenSet, Match, Optional

from fairseq.dataclass.configs import GenerationConfig

from ..errors import FLAGS_ARE_TYPED, PluginError
from ..fairseq_compat.options import flag_of
from ..fairseq_compat.tasks import TASK_OPTIONS
from ..methods.registry import all_flags

_FLAG = re.compile(r"--[a-z0-9]+(?:-[a-z0-9]+)*")


class NamedAsGiven(contextlib.ContextDecorator):
    """Lets a :class:`PluginError` name Python's options, but where a command line runs."""

    def __enter__(self) -> None:
        """There is nothing to prepare."""

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Any) -> None:
        if isinstance(error, PluginError) and not FLAGS_ARE_TYPED.get():
            error.code = _FLAG.sub(_in_python, str(error))
            error.args = (error.code,)


#: Decorates what users call from Python.
named_as_given = NamedAsGiven()


def _in_python(flag: "Match[str]") -> str:
    name = flag[0][2:].replace("-", "_")
    return name if flag[0] in _known(len(all_flags())) else flag[0]


@functools.cache
def _known(methods_flags: int) -> FrozenSet[str]:
    """The flags of which there are options in Python; methods may be registered later."""
    search = (each.name for each in fields(GenerationConfig))
    names = ("decoding", "device", "task", *all_flags(), *search, *TASK_OPTIONS)
    return frozenset(map(flag_of, names))
