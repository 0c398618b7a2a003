"""The loss of proposal heads (Stern et al., 2018, section 6) and their mean accepted block."""

import math
from bisect import bisect
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import Any, Dict, List, Sequence, Tuple

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.dataclass import ChoiceEnum
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from ..data.counter_random import counter_uniform
from ..errors import PluginError
from ..fairseq_compat.options import option
from ..fairseq_compat.training_options import TrainingConfig
from ..models.blockwise_transformer import BlockwiseTransformerModel
from .logs import log_entries, log_losses, summed
from .projected_loss import projected_loss
from .ranges import SMOOTHING, check_values

HEAD_LOSS_CHOICES = ChoiceEnum(["random", "mean"])
# Purpose of the random numbers; see counter_uniform.
_HEAD = 3


@dataclass
class BlockwiseCrossEntropyConfig(TrainingConfig):
    """Options of the loss of proposal heads."""

    label_smoothing: float = option(0.1, "epsilon of label smoothing; 0 means none")
    head_loss: HEAD_LOSS_CHOICES = option(
        "random",
        "random: each update trains one randomly drawn head, as in Stern et al. 2018; "
        "mean: each update trains all heads, which has the same expected gradient but takes "
        "more time and memory",
    )
    head_decay: float = option(
        1.0,
        "ratio of a head's loss weight to that of the head before it: 1 weights all "
        "heads alike, as in Stern et al. 2018; 0.8 favours the heads that decoding uses more",
    )
    seed: int = II("common.seed")


@register_criterion("blockwise_cross_entropy", dataclass=BlockwiseCrossEntropyConfig)
class BlockwiseCrossEntropy(FairseqCriterion):
    """Label-smoothed cross entropy of one head, or the mean over all trained heads.

    Let S_i be the sum of head i's losses over the tokens that it can predict, and n the number of
    all tokens. Head i cannot predict the first i - 1 tokens of a sentence. The mean is
    (1/k) Σ S_i / n, and the loss of a drawn head is S_i / n. All workers draw the same head, and
    sums and n add up over them. So the expected gradient is that of the mean for any number of
    workers.

    A draft ends at its first wrong token, so the first heads decide most of the acceptance.
    Head 1 decides the translation. With a decay γ the mean is Σ γ^i S_i / (n Σ γ^i), and heads are
    drawn with these weights. The decay is not in Stern et al. 2018.
    """

    def __init__(self, cfg: BlockwiseCrossEntropyConfig, task: Any) -> None:
        super().__init__(task)
        check_values(cfg, label_smoothing=SMOOTHING)
        if not 0 < cfg.head_decay <= 1:
            raise PluginError(
                f"--head-decay {cfg.head_decay}: a head's loss weighs at most as much as that of "
                "the head before it. Give a number above 0 and at most 1."
            )
        self.cfg = cfg

    def shares(self, heads: Sequence[int]) -> List[float]:
        """The weight of each of these heads in the mean; the weights sum to 1."""
        weights = [self.cfg.head_decay ** (head - heads[0]) for head in heads]
        return [weight / sum(weights) for weight in weights]

    def heads_of(self, trained: Sequence[int], update: int) -> Sequence[int]:
        """Those of the ``trained`` heads, which have weights to train, that an update trains."""
        if str(self.cfg.head_loss) == "mean":
            return trained
        drawn = float(counter_uniform(torch.tensor([update]), 1, self.cfg.seed, _HEAD))
        below = list(accumulate(self.shares(trained)))
        return [trained[min(bisect(below, drawn), len(trained) - 1)]]

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """The loss of a batch, always summed.

        Returns:
            the sum of the losses, the number of tokens (the gradient's denominator), and sums
            for the log.
        """
        if not hasattr(model, "trained_heads"):
            raise PluginError(
                "--criterion blockwise_cross_entropy trains proposal heads: add --arch "
                "blockwise_transformer --task blockwise_translation, or give another criterion."
            )
        if not hasattr(self.task, "updates"):
            raise PluginError(
                "--criterion blockwise_cross_entropy needs a task that trains proposal heads: add "
                "--task blockwise_translation."
            )
        if not model.training:
            return self._validate(model, sample)
        heads = self.heads_of(model.trained_heads, self.task.updates)
        weight = model.decoder.output_projection.weight
        sums = []
        for head, states in zip(heads, model(**sample["net_input"], heads=heads)):
            targets = _targets(sample["target"], head, self.padding_idx)
            sums.append(projected_loss(states, weight, targets, self.cfg.label_smoothing))
        loss, nll = self._mean(heads, sums)
        return loss, sample["ntokens"], log_entries(sample, loss, nll, sample["ntokens"])

    def _mean(
        self, heads: Sequence[int], sums: Sequence[Tuple[Tensor, Tensor]]
    ) -> Tuple[Tensor, Tensor]:
        """Weighted means of the heads' losses and negative log likelihoods."""
        shares = self.shares(heads)
        loss, nll = (sum(map(mul, shares, part)) for part in zip(*sums))
        return loss, nll

    @torch.no_grad()
    def _validate(
        self, model: BlockwiseTransformerModel, sample: Dict[str, Any]
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """The mean over all heads, and sums of their accuracies and accepted blocks for the log."""
        net_input, target = sample["net_input"], sample["target"]
        shifted = net_input["prev_output_tokens"]
        inputs = model.features(**net_input)
        sums, predictions = [], []
        counts: Dict[str, Any] = {}
        for head in range(1, model.block_size + 1):
            (states,) = model.states(*inputs, shifted, [head])
            logits = model.decoder.output_projection(states)  # one head at a time saves memory
            positions = model.positions(shifted, head)
            targets = _targets(target, head, self.padding_idx)
            lprobs = utils.log_softmax(logits, dim=-1)
            smoothing = self.cfg.label_smoothing
            sums.append(label_smoothed_nll_loss(lprobs, targets.unsqueeze(-1), smoothing))
            logits[:, self.padding_idx] = -math.inf
            argmax = logits.argmax(-1)
            right = argmax == targets
            counts[f"nll_{head}"], counts[f"right_{head}"] = sums[-1][1].data, right.sum()
            counts[f"count_{head}"] = positions.sum()
            predictions.append(torch.full_like(target, -1).masked_scatter(positions, argmax))
        loss, nll = self._mean(range(1, model.block_size + 1), sums)
        ends = target.ne(self.padding_idx).sum(1)
        counts["iterations"] = iterations(torch.stack(predictions), ends).sum()
        size = sample["ntokens"]
        return loss, size, {**log_entries(sample, loss, nll, size), **counts}

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log means over all workers."""
        sums = summed(logging_outputs)
        size = sums.get("sample_size", 0)
        if size == 0:
            return
        log_losses(sums)
        needed = sums.get("iterations", 0)
        if needed > 0:
            metrics.log_scalar("accepted", size / needed, needed, round=3)
        head = 1
        while f"count_{head}" in sums:
            count = sums[f"count_{head}"]
            if count > 0:
                nll = sums[f"nll_{head}"] / count / math.log(2)
                metrics.log_scalar(f"nll_loss_{head}", nll, count, round=3)
                right = 100 * sums[f"right_{head}"] / count
                metrics.log_scalar(f"accuracy_{head}", right, count, round=1)
            head += 1

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All entries are sums."""
        return True


def iterations(predictions: Tensor, ends: Tensor) -> Tensor:
    """The number of iterations of blockwise decoding if its output were the target.

    Let s be the position whose state the heads read. Head 1 predicts the token after s, and heads
    2 to k draft the following tokens. A drafted token is accepted while it is head 1's argmax at
    its own position, given the target before. Then head 1's next token is added, and the heads
    read the state that predicted it. So the block from s has 1 + (leading drafts that agree with
    head 1) tokens, and the next s is that much further. The mean accepted block size is tokens
    divided by iterations.

    Where greedy decoding yields the target, these are exactly the iterations of ``--decoding
    blockwise`` with exact acceptance and full blocks. Its first iteration drafts nothing.
    Elsewhere head 1 is evaluated as if the prefix were the target's.

    Args:
        predictions: (k, rows, length) argmax of each head at each position; any value where the
            sentence has no token for the head.
        ends: (rows,) number of tokens of each sentence, its end included.

    Returns:
        (rows,) iterations.
    """
    heads, rows, length = predictions.shape
    agrees = predictions.new_zeros((heads - 1, rows, length), dtype=torch.bool)
    for ahead in range(1, min(heads, length)):
        short = length - ahead
        agrees[ahead - 1, :, :short] = predictions[ahead, :, :short] == predictions[0, :, ahead:]
    # A block may seem to go on behind the end, which changes nothing: the sentence is over there.
    blocks = 1 + agrees.long().cumprod(0).sum(0)  # (rows, length)
    # The first iteration yields the first token and the state at position 0. A last block of
    # one token needs no further iteration, because the one before has already predicted it.
    position = torch.zeros_like(ends)
    count = torch.ones_like(ends)
    for _ in range(length):
        unfinished = (position < ends - 1).long()
        count = count + unfinished
        step = blocks.gather(1, position.clamp(max=length - 1).unsqueeze(1)).squeeze(1)
        position = position + step * unfinished
    return count


def _targets(target: Tensor, head: int, pad: int) -> Tensor:
    """(n,) targets of a head, at :meth:`BlockwiseTransformerModel.positions`, in order."""
    ahead = target[:, min(head - 1, target.size(1)) :]
    return ahead[ahead.ne(pad)]
