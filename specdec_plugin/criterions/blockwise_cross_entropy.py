"""The loss of proposal heads (Stern et al., 2018, section 6), and the block size they reach."""

import math
from bisect import bisect
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul
from typing import Any, Dict, List, Sequence, Tuple

import torch
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II
from torch import Tensor

from ..data.counter_random import counter_uniform
from ..errors import PluginError
from ..models.blockwise_transformer import BlockwiseTransformerModel
from .projected_loss import projected_loss

try:  # moved in newer fairseq
    from fairseq.logging import metrics
except ImportError:
    from fairseq import metrics

HEAD_LOSS_CHOICES = ChoiceEnum(["random", "mean"])
# Purpose of random numbers; see counter_uniform.
_HEAD = 3


@dataclass
class BlockwiseCrossEntropyConfig(FairseqDataclass):
    """Options of the loss of proposal heads."""

    label_smoothing: float = field(
        default=0.1,
        metadata={"help": "epsilon of label smoothing; 0 means none"},
    )
    head_loss: HEAD_LOSS_CHOICES = field(
        default="random",
        metadata={
            "help": "random: each update trains one head, drawn at random, as in the paper; mean: "
            "the mean of all heads, whose expectation the former is, for more time and memory"
        },
    )
    head_decay: float = field(
        default=1.0,
        metadata={
            "help": "weight of a head's loss, as a part of that of the head before it: 1, as in "
            "the paper, counts all alike; 0.8 counts those more that are asked more often"
        },
    )
    seed: int = II("common.seed")


@register_criterion("blockwise_cross_entropy", dataclass=BlockwiseCrossEntropyConfig)
class BlockwiseCrossEntropy(FairseqCriterion):
    """Label-smoothed cross entropy of one head, or the mean of all that are trained.

    With S_i the sum of head i's losses over the tokens that it can predict (those that are
    i - 1 or more behind another of their sentence) and n all tokens, the mean is
    (1/k) Σ S_i / n, and a drawn head's loss S_i / n. Sums and n add up over workers, who all draw
    the same head, so that the expected gradient is that of the mean on any number of them.

    A draft ends at its first wrong token, so that the first heads decide most of what is accepted,
    and head 1 the translation. With a decay γ the mean is Σ γ^i S_i / (n Σ γ^i), and heads are
    drawn as often as they count there (an addition to the paper).

    In pytorch_ddp, an update that draws head 1 leaves the heads' weights without a gradient: with
    several workers, add ``--find-unused-parameters`` or ``--ddp-backend legacy_ddp``.
    """

    def __init__(
        self, task: Any, label_smoothing: float, head_loss: str, head_decay: float, seed: int
    ) -> None:
        super().__init__(task)
        if not 0 < head_decay <= 1:
            raise PluginError(
                f"--head-decay {head_decay}: each head's loss counts as much as that of the head "
                "before it (1), or less. Give a number above 0, and 1 at most."
            )
        self.label_smoothing = label_smoothing
        self.draws = str(head_loss) == "random"
        self.head_decay = head_decay
        self.seed = seed

    def shares(self, heads: Sequence[int]) -> List[float]:
        """What part of the mean each of these heads is; 1 in all."""
        weights = [self.head_decay ** (head - heads[0]) for head in heads]
        return [weight / sum(weights) for weight in weights]

    def heads_of(self, trained: Sequence[int], update: int) -> Sequence[int]:
        """The heads that an update trains.

        Args:
            trained: all that have weights to train.
            update: its number.
        """
        if not self.draws:
            return trained
        drawn = float(counter_uniform(torch.tensor([update]), 1, self.seed, _HEAD))
        below = list(accumulate(self.shares(trained)))
        return [trained[min(bisect(below, drawn), len(trained) - 1)]]

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """The loss of a batch.

        Args:
            model: a :class:`BlockwiseTransformerModel`, perhaps wrapped for several workers.
            sample: fairseq's batch.
            reduce: always summed; fairseq passes it.

        Returns:
            the sum of the losses, the number of tokens (the gradient's denominator), and sums
            for the log.
        """
        if not hasattr(model, "trained_heads"):
            raise PluginError(
                "--criterion blockwise_cross_entropy trains proposal heads: add --arch "
                "blockwise_transformer --task blockwise_translation, or give another criterion."
            )
        if not model.training:
            return self._validate(model, sample)
        heads = self.heads_of(model.trained_heads, self.task.updates)
        weight = model.decoder.output_projection.weight
        sums = []
        for head, states in zip(heads, model(**sample["net_input"], heads=heads)):
            wanted = _targets(sample["target"], head, self.padding_idx)
            sums.append(projected_loss(states, weight, wanted, self.label_smoothing))
        loss, nll = self._mean(heads, sums)
        return loss, sample["ntokens"], _log(sample, loss, nll)

    def _mean(
        self, heads: Sequence[int], sums: Sequence[Tuple[Tensor, Tensor]]
    ) -> Tuple[Tensor, Tensor]:
        """Loss and negative log likelihood of all heads, from those of each."""
        shares = self.shares(heads)
        loss, nll = (sum(map(mul, shares, part)) for part in zip(*sums))
        return loss, nll

    @torch.no_grad()
    def _validate(
        self, model: BlockwiseTransformerModel, sample: Dict[str, Any]
    ) -> Tuple[Tensor, Any, Dict[str, Any]]:
        """The mean of all heads, what each says, and the blocks that would be accepted."""
        net_input, target = sample["net_input"], sample["target"]
        shifted = net_input["prev_output_tokens"]
        read = model.features(**net_input)
        sums, said = [], []
        counts: Dict[str, Any] = {}
        for head in range(1, model.block_size + 1):
            (states,) = model.states(*read, shifted, [head])
            logits = model.decoder.output_projection(states)  # one at a time: they are large
            places = model.places(shifted, head)
            wanted = _targets(target, head, self.padding_idx)
            lprobs = utils.log_softmax(logits, dim=-1)
            sums.append(label_smoothed_nll_loss(lprobs, wanted.unsqueeze(-1), self.label_smoothing))
            logits[:, self.padding_idx] = -math.inf
            best = logits.argmax(-1)
            right = best == wanted
            counts[f"nll_{head}"], counts[f"right_{head}"] = sums[-1][1].data, right.sum()
            counts[f"count_{head}"] = places.sum()
            said.append(torch.full_like(target, -1).masked_scatter(places, best))
        loss, nll = self._mean(range(1, model.block_size + 1), sums)
        ends = target.ne(self.padding_idx).sum(1)
        counts["iterations"] = iterations(torch.stack(said), ends).sum()
        return loss, sample["ntokens"], {**_log(sample, loss, nll), **counts}

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log means over all workers."""
        sums: Dict[str, Any] = {}
        for log in logging_outputs:
            for key, value in log.items():
                sums[key] = sums.get(key, 0) + value
        size = sums.get("sample_size", 0)
        if size == 0:
            return
        for key in ("loss", "nll_loss"):
            metrics.log_scalar(key, sums[key] / size / math.log(2), size, round=3)
        iterations = sums.get("iterations", 0)
        if iterations > 0:
            metrics.log_scalar("accepted", size / iterations, iterations, round=3)
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


def iterations(said: Tensor, ends: Tensor) -> Tensor:
    """How many iterations blockwise decoding would take, were its output the target.

    Let s be the place whose state the heads read. Head 1 says the token behind it, and heads 2
    to k draft those that follow. A draft stands as long as each token of it is what head 1 says at
    its own place, given the target before; then head 1's next token is added, and the heads read
    the state that said it. So from s a block of 1 + (leading drafts that agree with head 1)
    tokens is accepted, the next s is as much further, and the mean accepted block size is tokens
    divided by iterations. Where greedy decoding says the target, these are exactly the iterations
    of ``--decoding blockwise`` with exact acceptance and full blocks, the first of which drafts
    nothing; elsewhere head 1 is asked as if the target had been said until then.

    Args:
        said: (k, rows, length) what each head says at each place; anything where the sentence
            has no token for the head.
        ends: (rows,) tokens of each sentence, its end included.

    Returns:
        (rows,).
    """
    heads, rows, length = said.shape
    places = torch.arange(length, device=said.device)
    agrees = torch.zeros(heads - 1, rows, length, dtype=torch.bool, device=said.device)
    for ahead in range(1, min(heads, length)):
        short = length - ahead
        agrees[ahead - 1, :, :short] = said[ahead, :, :short] == said[0, :, ahead:]
        agrees[ahead - 1] &= places + ahead < ends.unsqueeze(1)
    blocks = 1 + agrees.long().cumprod(0).sum(0)  # (rows, length)
    # The first iteration gives the first token, and the state to read at place 0. A block that
    # ends the sentence is accepted in one more, unless it is of one token, which is there already.
    place = torch.zeros_like(ends)
    count = torch.ones_like(ends)
    for _ in range(length):
        going = place < ends - 1
        count = count + going.long()
        step = blocks.gather(1, place.clamp(max=length - 1).unsqueeze(1)).squeeze(1)
        place = place + step * going.long()
    return count


def _targets(target: Tensor, head: int, pad: int) -> Tensor:
    """(n,) what a head is to say, at the places of :meth:`BlockwiseTransformerModel.places`."""
    ahead = target[:, min(head - 1, target.size(1)) :]
    return ahead[ahead.ne(pad)]


def _log(sample: Dict[str, Any], loss: Tensor, nll: Tensor) -> Dict[str, Any]:
    return {
        "loss": loss.data,
        "nll_loss": nll.data,
        "ntokens": sample["ntokens"],
        "nsentences": sample["target"].size(0),
        "sample_size": sample["ntokens"],
    }
