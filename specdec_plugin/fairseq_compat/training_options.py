"""fairseq's options of training that do something else than a user expects, and are refused."""

from dataclasses import dataclass
from typing import Any, Callable

import torch
from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from ..errors import PluginError

#: Beginnings of the names of figures that grow as models get better.
_RISING = ("accepted", "accuracy", "bleu")


@dataclass
class TrainingConfig(FairseqDataclass):
    """Lets a criterion, and so its task, read them."""

    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")
    cpu: bool = II("common.cpu")
    fp16: bool = II("common.fp16")
    bf16: bool = II("common.bf16")
    memory_efficient_fp16: bool = II("common.memory_efficient_fp16")
    memory_efficient_bf16: bool = II("common.memory_efficient_bf16")


def check_training_when_parsed(parser: Any, check: Callable[[Any], None]) -> None:
    """Let a parser of fairseq-train or fairseq-validate check what it parsed at once.

    For batches without a size, both have an assertion.

    Args:
        parser: fairseq's, to which a task adds its flags; others are left as they are.
        check: further checks of all options.
    """
    # fairseq-generate and fairseq-interactive have sizes of their own; where fairseq registers a
    # task, it hands over a group of options.
    if parser.get_default("beam") is not None or not hasattr(parser, "parse_known_args"):
        return
    parse = parser.parse_known_args

    def parse_known_args(args: Any = None, namespace: Any = None) -> Any:
        found, rest = parse(args, namespace)
        if getattr(found, "max_tokens", 1) is None and getattr(found, "batch_size", 1) is None:
            raise PluginError(
                "Batches need a size: give --max-tokens, such as 4096, or --batch-size."
            )
        check(found)
        return found, rest

    parser.parse_known_args = parse_known_args


def check_training(cfg: TrainingConfig) -> None:
    """Refuse to keep the worst checkpoint, and half precision without a GPU.

    Only a training may call it: a checkpoint keeps the options that it was trained with.

    Raises:
        PluginError: names the option, and the cure.
    """
    metric = cfg.best_checkpoint_metric
    if metric.startswith(_RISING) and not cfg.maximize_best_checkpoint_metric:
        raise PluginError(
            f"--best-checkpoint-metric {metric} grows as models get better, so the worst "
            "checkpoint would be kept as the best one: add --maximize-best-checkpoint-metric."
        )
    for name in ("fp16", "bf16"):
        wanted = getattr(cfg, name) is True and getattr(cfg, f"memory_efficient_{name}") is not True
        if wanted and (cfg.cpu is True or not torch.cuda.is_available()):
            raise PluginError(
                f"--{name} trains on a GPU only: leave it out, or give --cpu-autocast bfloat16."
            )
