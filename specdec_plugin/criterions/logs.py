"""What the losses tell fairseq's log: sums of batches, which add up over workers."""

import math
from typing import Any, Dict, Mapping, Sequence

from fairseq.logging import metrics
from torch import Tensor


def log_entries(sample: Mapping[str, Any], loss: Tensor, nll: Tensor, size: Any) -> Dict[str, Any]:
    """The entries of a batch that every loss has, by fairseq's names.

    Args:
        sample: fairseq's batch.
        loss: a sum over the batch, in nats.
        nll: likewise, without smoothing and other terms.
        size: the gradient's denominator.
    """
    return {
        "loss": loss.data,
        "nll_loss": nll.data,
        "ntokens": sample["ntokens"],
        "nsentences": sample["target"].size(0),
        "sample_size": size,
    }


def summed(logs: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """The entries of several batches, added up."""
    sums: Dict[str, Any] = {}
    for log in logs:
        for name, value in log.items():
            sums[name] = sums.get(name, 0) + value
    return sums


def log_losses(sums: Mapping[str, Any]) -> None:
    """Log the means of loss and negative log-likelihood, in bits."""
    size = sums["sample_size"]
    for name in ("loss", "nll_loss"):
        metrics.log_scalar(name, sums[name] / size / math.log(2), size, round=3)
