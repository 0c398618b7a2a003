"""The drafter's loss: label-smoothed cross entropy of hidden blocks, with glancing."""

import logging
import math
from dataclasses import dataclass
from typing import Any, Dict, List, Tuple

import torch
import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.logging import metrics
from omegaconf import II
from torch import Tensor

from ..data.block_masking import Blocks, block_noise, sample_blocks
from ..data.counter_random import counter_uniform
from ..errors import PluginError
from ..fairseq_compat.options import option
from ..fairseq_compat.training_options import TrainingConfig
from ..models.block_nat import BlockPrediction, Glancing
from .distilled_loss import Teacher, distilled_loss
from .logs import log_entries, log_losses, summed
from .ranges import COUNT, DECAY, SHARE, SMOOTHING, check_values

logger = logging.getLogger(__name__)

# Purposes of random numbers; see counter_uniform.
_STARTS, _REVEALED = 1, 2
# Validation hides the same blocks in every epoch, so its figures are comparable.
_VALIDATION_EPOCH = 0
#: Target tokens by which a teacher is judged.
_LOOKED_AT = 256


@dataclass
class GlancingBlockLossConfig(TrainingConfig):
    """Options of the drafter's loss."""

    label_smoothing: float = option(0.1, "epsilon of label smoothing; 0 means none")
    glancing_start: float = option(
        0.5,
        "λ at the first update: reference tokens that the second pass may see, as a "
        "share of the wrong predictions; 0 with --glancing-end 0 turns glancing off",
    )
    glancing_end: float = option(
        0.3, "λ after --glancing-updates updates; λ changes linearly until then"
    )
    glancing_updates: int = option(0, "updates over which λ changes; 0 means --max-update")
    block_rate: float = option(
        0.25,
        "hidden blocks per target token, all trained in one pass; 0 hides one block "
        "per sentence, as in Xia et al. 2023. --prefix-attention full always hides one",
    )
    position_decay: float = option(
        1.0,
        "the i-th position of a block has this weight to the power i - 1; below 1 "
        "favours the first tokens, without which later ones cannot be accepted",
    )
    teacher_weight: float = option(
        0.5,
        "with --teacher-path: weight of the divergence from the teacher's "
        "distributions in the loss; the rest is the label-smoothed loss of the target",
    )
    teacher_temperature: float = option(
        1.0, "divides the logits of teacher and drafter in the divergence"
    )
    seed: int = II("common.seed")
    max_update: int = II("optimization.max_update")


@register_criterion("glancing_block_loss", dataclass=GlancingBlockLossConfig)
class GlancingBlockLoss(FairseqCriterion):
    """Sums of weighted token losses and of weights, which add up exactly over workers."""

    def __init__(self, cfg: GlancingBlockLossConfig, task: Any) -> None:
        super().__init__(task)
        check_values(
            cfg,
            label_smoothing=SMOOTHING,
            glancing_start=SHARE,
            glancing_end=SHARE,
            glancing_updates=COUNT,
            block_rate=SHARE,
            position_decay=DECAY,
        )
        if not 0 <= cfg.teacher_weight <= 1 or cfg.teacher_temperature <= 0:
            raise PluginError(
                "--teacher-weight must be from 0 to 1, and --teacher-temperature above 0."
            )
        if not hasattr(task, "teacher"):
            raise PluginError(
                "--criterion glancing_block_loss trains a drafter: add --arch block_nat --task "
                "block_nat_translation, or give another criterion."
            )
        falls = cfg.glancing_start != cfg.glancing_end
        if falls and not (cfg.glancing_updates or cfg.max_update):
            logger.warning(
                f"The glancing ratio is {cfg.glancing_end} from the first update on: add "
                "--glancing-updates or --max-update, over which it falls."
            )
        self.cfg = cfg
        self._teacher_is_checked = False

    def glancing_ratio(self, update: int) -> float:
        """λ at an update: from ``glancing_start`` linearly to ``glancing_end``, then constant."""
        cfg, updates = self.cfg, self.cfg.glancing_updates or self.cfg.max_update
        share = min(1.0, update / updates) if updates > 0 else 1.0
        return cfg.glancing_start + share * (cfg.glancing_end - cfg.glancing_start)

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, Tensor, Dict[str, Any]]:
        """The loss of a batch, always summed.

        Returns:
            the weighted sum of the losses, the sum of the weights (the gradient's denominator, the
            number of tokens with ``position_decay`` 1), and sums for the log.
        """
        cfg = self.cfg
        epoch = self.task.epoch if model.training else _VALIDATION_EPOCH
        blocks = self._blocks(model, sample, epoch)
        glancing = None
        if model.training and max(cfg.glancing_start, cfg.glancing_end) > 0:
            noise = block_noise(sample["id"], blocks, cfg.seed, epoch, _REVEALED)
            glancing = Glancing(self.glancing_ratio(self.task.updates), noise)
        prediction = model(**sample["net_input"], blocks=blocks, glancing=glancing)

        target = blocks.targets[prediction.scored]
        teacher = None
        if self.task.teacher is not None and model.training:
            teacher = self._teacher(model, sample, blocks, prediction)
        positions = torch.arange(blocks.scored.size(2), device=target.device)
        weights = (cfg.position_decay**positions).expand_as(blocks.scored)[prediction.scored]
        loss, nll = distilled_loss(prediction.logits, target, weights, cfg.label_smoothing, teacher)
        size = weights.sum()
        logging_output = log_entries(sample, loss, nll, size.data)
        if not model.training:
            logging_output.update(_acceptance(prediction, blocks))
        return loss, size, logging_output

    def _teacher(
        self, model: Any, sample: Dict[str, Any], blocks: Blocks, prediction: BlockPrediction
    ) -> Teacher:
        """What the teacher predicts at each scored position.

        The teacher reads all target tokens before a position. The drafter reads only the prefix
        of its block, so its distribution is wider.
        """
        positions = blocks.starts.unsqueeze(2) + torch.arange(
            blocks.scored.size(2), device=blocks.starts.device
        )
        rows = torch.arange(positions.size(0), device=positions.device)
        rows = rows.view(-1, 1, 1).expand_as(positions)
        scored = prediction.scored
        dtype = model.decoder.embed_tokens.weight.dtype
        logits = self.task.teacher.logits(
            sample["net_input"], model.encoder, prediction.encoder_out, dtype
        )
        if not self._teacher_is_checked:
            self._teacher_is_checked = True
            _warn_if_worse_than_chance(logits, sample["target"], self.padding_idx)
        return Teacher(
            logits.flatten(0, 1),
            rows[scored] * logits.size(1) + positions[scored],
            self.cfg.teacher_weight,
            self.cfg.teacher_temperature,
        )

    def _blocks(self, model: Any, sample: Dict[str, Any], epoch: int) -> Blocks:
        target = sample["target"]
        noise = counter_uniform(sample["id"], target.size(1), self.cfg.seed, epoch, _STARTS)
        rate = self.cfg.block_rate if model.decoder.causal_prefix else 0.0
        return sample_blocks(target, self.padding_idx, model.decoder.block_size, rate, noise)

    @classmethod
    def reduce_metrics(cls, logging_outputs: List[Dict[str, Any]]) -> None:
        """Log means over all workers."""
        sums = summed(logging_outputs)
        size = sums.get("sample_size", 0)
        if size == 0:
            return
        log_losses(sums)
        metrics.log_derived("ppl", lambda meters: utils.get_perplexity(meters["nll_loss"].avg))
        metrics.log_scalar("predicted", size, round=0)
        blocks = sums.get("blocks", 0)
        if blocks > 0:
            metrics.log_scalar("accepted", sums["accepted"] / blocks, blocks, round=3)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        """All entries are sums."""
        return True


def _warn_if_worse_than_chance(logits: Tensor, target: Tensor, padding: int) -> None:
    """Warn where a teacher predicts the first targets worse than one that knows nothing.

    A checkpoint has no dictionary. One of another dictionary of the same size would teach nonsense.

    Args:
        logits: (rows, length, vocabulary).
        target: (rows, length) long.
        padding: what ``target`` is padded with.
    """
    real = target.ne(padding)
    nll = float(F.cross_entropy(logits[real][:_LOOKED_AT].float(), target[real][:_LOOKED_AT]))
    chance = math.log(logits.size(-1))
    if nll > chance:
        logger.warning(
            f"The teacher predicts targets worse than chance (nll {nll:.1f}, chance {chance:.1f}). "
            "It may have been trained with other dictionaries: use those that it was trained with."
        )


def _acceptance(prediction: BlockPrediction, blocks: Blocks) -> Dict[str, Tensor]:
    """The number of leading tokens that agree with the reference, and the number of blocks.

    Their ratio is the mean accepted length of exact verification if the verifier predicted the
    reference.
    """
    right = torch.zeros_like(blocks.scored)
    right[prediction.scored] = prediction.logits.argmax(-1) == blocks.targets[prediction.scored]
    leading = right.long().cumprod(2).sum()
    return {"accepted": leading, "blocks": blocks.scored[:, :, 0].sum()}
