"""Mixed-precision training on a CPU; fairseq's ``--amp`` needs CUDA."""

import contextlib
import functools
import logging
from dataclasses import dataclass
from typing import Any, Iterator

import torch
from fairseq.dataclass import ChoiceEnum
from fairseq.tasks import FairseqTask
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from .options import option, task_options

logger = logging.getLogger(__name__)

AUTOCAST_CHOICES = ChoiceEnum(["none", "bfloat16"])


@dataclass
class AutocastConfig:
    """The option that all training tasks share."""

    cpu_autocast: AUTOCAST_CHOICES = option(
        "none",
        "the type of matrix products when training on a CPU. bfloat16 is faster on "
        "processors with AVX512-BF16 or AMX; weights and optimizer stay in float32. Where "
        "PyTorch has no products of bfloat16 for the processor, float32 is used",
    )


#: Up to this many tokens, PyTorch's fused attention is slower in bfloat16 than the products that it
#: fuses. Forward and backward passes of 4,096 tokens on two cores took 23 ms against 7 ms at length
#: 32, 25 against 14 at 128, and 27 against 52 at 512. In float32 it is always faster.
SHORT = 256


@functools.cache
def multiplies_bfloat16() -> bool:
    """Whether PyTorch has products of bfloat16 for this processor; logs a warning if not."""
    # PyTorch without oneDNN has no such question.
    available = torch.backends.mkldnn.is_available()
    supported = available and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if not supported:
        logger.warning(
            "--cpu-autocast bfloat16 has no effect: this processor has no products of bfloat16, "
            "and PyTorch's own are many times as slow as float32."
        )
    return supported


class AutocastMixin(FairseqTask):
    """Runs ``train_step`` of a fairseq task under ``torch.autocast``."""

    @contextlib.contextmanager
    def _autocast(self, sample: Any) -> Iterator[None]:
        wanted = str(getattr(task_options(self), "cpu_autocast", "none")) != "none"
        if not wanted or not multiplies_bfloat16():
            yield
            return
        with contextlib.ExitStack() as stack:
            stack.enter_context(torch.autocast("cpu", dtype=torch.bfloat16))
            if _short(sample):
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
            yield

    def train_step(self, sample: Any, *args: Any, **kwargs: Any) -> Any:
        """See :meth:`fairseq.tasks.FairseqTask.train_step`."""
        with self._autocast(sample):
            return super().train_step(sample, *args, **kwargs)


def _short(sample: Any) -> bool:
    """Whether a batch is on a CPU and has no sentence, source or target, longer than SHORT."""
    inputs = (sample or {}).get("net_input", {}).values()
    sides = [each for each in inputs if isinstance(each, Tensor) and each.dim() == 2]
    return all(each.device.type == "cpu" and each.size(1) <= SHORT for each in sides)
