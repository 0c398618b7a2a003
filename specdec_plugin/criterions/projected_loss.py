"""Label-smoothed cross entropy of states that are still to be projected on the vocabulary.

Logits of all states at once fill gigabytes (8 heads, 3,400 tokens and 8,000 symbols: 0.9 GB, and as
much for each step to their gradient), and going through them over and over takes longer than
the products. So they are computed a chunk at a time, with their gradient, and dropped.
"""

from typing import Any, List, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

#: States that are projected at a time. On two cores 256 and 512 were fastest (1.5 times as fast at
#: 27,000 states and 8,000 symbols as 64, where starting each operation costs more than it does).
CHUNK = 256


def projected_loss(
    states: Tensor, weight: Tensor, targets: Tensor, smoothing: float
) -> Tuple[Tensor, Tensor]:
    """What fairseq's label-smoothed loss gives for ``states @ weight.T``, without keeping that.

    With n = logsumexp(z) - z_t for logits z, V symbols and ε_V = ε / (V - 1), a state's loss is

        (1 - ε - ε_V) n + ε_V Σ_v (logsumexp(z) - z_v)

    whose gradient is softmax(z) - ε_V - (1 - ε - ε_V) [v = t].

    Args:
        states: (n, dim).
        weight: (vocabulary, dim) of the projection.
        targets: (n,) symbols.
        smoothing: ε.

    Returns:
        the sum over all states, which has a gradient, and the same without smoothing, which has
        none.
    """
    loss, nll = _ProjectedLoss.apply(states, weight, targets, smoothing)
    return loss, nll


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float
    ) -> Tuple[Tensor, Tensor]:
        kind = F.linear(states[:0], weight).dtype  # the type that autocast computes in, if any
        # Half precision would lose what is small in a gradient that is not scaled yet.
        exact = torch.float32 if kind == torch.float16 else kind
        low_states, low_weight = states.to(kind), weight.to(kind)
        of_states = torch.empty_like(states) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight, dtype=torch.float32)
        loss, nll = (torch.zeros((), device=states.device) for _ in range(2))
        spread = smoothing / (len(weight) - 1)
        with torch.autocast(states.device.type, enabled=False):
            of_all = low_weight.float().sum(0)  # Σ_v z_v = h · Σ_v w_v
            for part in _chunks(len(states)):
                z = F.linear(low_states[part], low_weight).float()
                h, target = low_states[part].float(), targets[part].unsqueeze(1)
                most, said = z.amax(1, keepdim=True), z.gather(1, target)
                shares = z.sub_(most).exp_()
                parts = shares.sum(1, keepdim=True)
                total = parts.log() + most  # logsumexp(z)
                wrong = (total - said).sum()
                nll += wrong
                loss += (1 - smoothing - spread) * wrong
                loss += spread * (len(weight) * total.sum() - (h @ of_all).sum())
                if not any(ctx.needs_input_grad):
                    continue
                # What is the same for all symbols, -ε_V, is added to the products.
                slope = shares.mul_(parts.reciprocal())
                slope.scatter_add_(1, target, torch.full_like(said, spread + smoothing - 1))
                slope = slope.to(exact)
                if of_states is not None:
                    product = slope @ low_weight.to(exact)
                    of_states[part] = (product.float() - spread * of_all).to(states.dtype)
                if ctx.needs_input_grad[1]:
                    of_weight += slope.t() @ low_states[part].to(exact)
                    of_weight -= spread * h.sum(0)
        ctx.save_for_backward(of_states, of_weight.to(weight.dtype))
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Tuple[Any, Any, None, None]:
        of_states, of_weight = ctx.saved_tensors
        return (
            of_states * slopes[0] if ctx.needs_input_grad[0] else None,
            of_weight * slopes[0] if ctx.needs_input_grad[1] else None,
            None,
            None,
        )


def _chunks(count: int) -> List[slice]:
    return [slice(begin, begin + CHUNK) for begin in range(0, count, CHUNK)]
