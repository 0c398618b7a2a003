"""Mixed-precision training on a CPU, which fairseq's ``--amp`` (CUDA only) does not give."""

import contextlib
from dataclasses import dataclass, field
from typing import Any, ContextManager

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import FairseqTask

from ..decoding.config import task_options

AUTOCAST_CHOICES = ChoiceEnum(["none", "bfloat16"])


@dataclass
class AutocastConfig:
    """The flag that all training tasks share."""

    cpu_autocast: AUTOCAST_CHOICES = field(
        default="none",
        metadata={
            "help": "train on a CPU with matrix products in this type: bfloat16 is faster on "
            "processors that have AVX512-BF16 or AMX; weights and optimizer stay float32"
        },
    )


class AutocastMixin(FairseqTask):
    """Runs ``train_step`` of a fairseq task under ``torch.autocast``."""

    def _autocast(self) -> ContextManager[Any]:
        if str(getattr(task_options(self), "cpu_autocast", "none")) == "none":
            return contextlib.nullcontext()
        return torch.autocast("cpu", dtype=torch.bfloat16)

    def train_step(self, *args: Any, **kwargs: Any) -> Any:
        """See :meth:`fairseq.tasks.FairseqTask.train_step`."""
        with self._autocast():
            return super().train_step(*args, **kwargs)
