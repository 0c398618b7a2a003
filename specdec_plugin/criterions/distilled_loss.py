"""Label-smoothed cross entropy of logits, and their divergence from a teacher's distributions.

With a large vocabulary each step from logits to loss and back takes as much memory as the logits:
0.7 GB for 5,000 positions and 32,000 symbols. So both are computed a few rows at a time, and only
the gradient of the logits is kept.
"""

from typing import Any, NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Logits that are worked on at once. Their temporaries stay near the processor.
AT_ONCE = 1 << 22


class Teacher(NamedTuple):
    """Whose distributions are approached.

    Attributes:
        logits: (m, vocabulary).
        rows: (n,) which of them is that of each position.
        share: of the divergence in the loss; the rest is the cross entropy.
        temperature: T, which divides both logits in the divergence.
    """

    logits: Tensor
    rows: Tensor
    share: float
    temperature: float


def distilled_loss(
    logits: Tensor,
    targets: Tensor,
    weights: Tensor,
    smoothing: float,
    teacher: Optional[Teacher] = None,
) -> Tuple[Tensor, Tensor]:
    """The weighted sum of the losses of positions, and that of their cross entropies.

    With p = softmax(z) of V symbols, ε_V = ε / (V - 1), and q and p_T of both logits over T, the
    loss of a position and its gradient are

        (1 - share) (Σ_v s_v (-log p_v)) + share T² KL(q ‖ p_T)
        (1 - share) (p - s) + share T (p_T - q)

    where s is 1 - ε at the target and ε_V elsewhere: fairseq's label smoothing, and the
    distillation of Hinton et al. (2015).

    Args:
        logits: (n, vocabulary), which have a gradient.
        targets: (n,) symbols.
        weights: (n,) of the positions.
        smoothing: ε.
        teacher: its logits have no gradient; None: there is none.

    Returns:
        the sum of the losses, and the sum of -log p of the targets, which has no gradient.
    """
    loss, nll = _DistilledLoss.apply(logits, targets, weights, smoothing, teacher)
    return loss, nll


class _DistilledLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        targets: Tensor,
        weights: Tensor,
        smoothing: float,
        teacher: Optional[Teacher],
    ) -> Tuple[Tensor, Tensor]:
        loss, nll = (torch.zeros((), device=logits.device) for _ in range(2))
        gradient = None
        if ctx.needs_input_grad[0]:
            # Half precision would lose small values of a gradient that is not scaled yet.
            exact = torch.float32 if logits.dtype == torch.float16 else logits.dtype
            gradient = torch.empty_like(logits, dtype=exact)
        rows = max(1, AT_ONCE // logits.size(1))
        with torch.autocast(logits.device.type, enabled=False):
            for begin in range(0, len(logits), rows):
                part = slice(begin, begin + rows)
                weight = weights[part].float().unsqueeze(1)
                losses, nlls, slope = _of_rows(
                    logits[part], targets[part], smoothing, teacher, part
                )
                loss += (losses * weight).sum()
                nll += (nlls * weight).sum()
                if gradient is not None:
                    gradient[part] = slope.mul_(weight)
        ctx.kind, ctx.gradient = logits.dtype, gradient
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Tuple[Any, ...]:
        gradient = None if ctx.gradient is None else (ctx.gradient * slopes[0]).to(ctx.kind)
        return gradient, None, None, None, None


def _of_rows(
    logits: Tensor, targets: Tensor, smoothing: float, teacher: Optional[Teacher], part: slice
) -> Tuple[Tensor, Tensor, Tensor]:
    """(rows, 1) losses, (rows, 1) -log p of the targets, and (rows, vocabulary) the gradient."""
    spread = smoothing / (logits.size(1) - 1)
    target = targets.unsqueeze(1)
    log_p = F.log_softmax(logits, 1, dtype=torch.float32)
    nlls = -log_p.gather(1, target)
    losses = (1 - smoothing - spread) * nlls - spread * log_p.sum(1, keepdim=True)
    sharpened = log_p  # log p_T
    if teacher is not None and teacher.temperature != 1:
        sharpened = F.log_softmax(logits.float() / teacher.temperature, 1)
        p = log_p.exp_()
    else:
        p = log_p.exp()
    slope = p.sub(spread)
    slope.scatter_add_(1, target, torch.full_like(nlls, smoothing + spread - 1))
    if teacher is None:
        return losses, nlls, slope
    share, temperature = teacher.share, teacher.temperature
    log_q = F.log_softmax(teacher.logits[teacher.rows[part]].float() / temperature, 1)
    q = log_q.exp()
    divergence = (q * (log_q - sharpened)).sum(1, keepdim=True)
    losses = (1 - share) * losses + share * temperature**2 * divergence
    slope.mul_(1 - share).add_(sharpened.exp() - q, alpha=share * temperature)
    return losses, nlls, slope
