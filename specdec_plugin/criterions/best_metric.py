"""Which checkpoint of a drafter's or heads' training is the best one."""

from dataclasses import dataclass

from fairseq.dataclass import FairseqDataclass
from omegaconf import II

from ..errors import PluginError

#: Beginnings of the names of figures that grow as models get better.
_RISING = ("accepted", "accuracy", "bleu")


@dataclass
class BestMetricConfig(FairseqDataclass):
    """fairseq's options of the best checkpoint."""

    best_checkpoint_metric: str = II("checkpoint.best_checkpoint_metric")
    maximize_best_checkpoint_metric: bool = II("checkpoint.maximize_best_checkpoint_metric")


def check_best_metric(cfg: BestMetricConfig) -> None:
    """Refuse to keep the checkpoint with the least of a figure that should be great.

    Raises:
        PluginError: names the metric, and the cure.
    """
    metric = cfg.best_checkpoint_metric
    if metric.startswith(_RISING) and not cfg.maximize_best_checkpoint_metric:
        raise PluginError(
            f"--best-checkpoint-metric {metric} grows as models get better, so the worst "
            "checkpoint would be kept as the best one: add --maximize-best-checkpoint-metric."
        )
