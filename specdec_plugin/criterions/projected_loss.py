"""Label-smoothed cross entropy of states before their projection on the vocabulary.

The logits of all states take gigabytes: 0.9 GB for 8 heads, 3,400 tokens and 8,000 symbols. Each
step to their gradient takes as much again. Reading them repeatedly takes longer than the matrix
products. So logits and gradient are computed one chunk at a time, and the logits are dropped.
"""

from typing import Any, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from ..engine import choose_backend, native

#: States per chunk. Each chunk adds to the gradient of the whole projection, which takes a third
#: of its time with d=512 and 32,408 symbols: 3,500 states took 0.47 s in chunks of 512 and 0.40 s
#: in chunks of 1,024, on two cores. With a large vocabulary longer chunks would take gigabytes.
CHUNK = 1024
#: Logits of a chunk; chunks are half as long at least.
LOGITS = 1 << 25


def projected_loss(
    states: Tensor, weight: Tensor, targets: Tensor, smoothing: float
) -> Tuple[Tensor, Tensor]:
    """fairseq's label-smoothed loss of the logits ``states @ weight.T``, which are not kept.

    With n = logsumexp(z) - z_t for logits z, V symbols and ε_V = ε / (V - 1), a state's loss is

        (1 - ε - ε_V) n + ε_V Σ_v (logsumexp(z) - z_v)

    whose gradient is softmax(z) - ε_V - (1 - ε - ε_V) [v = t].

    Args:
        states: (n, dim).
        weight: (vocabulary, dim) of the projection.
        targets: (n,) symbols.
        smoothing: ε.

    Returns:
        the loss summed over all states, and the sum without smoothing, which has no gradient.
    """
    if not torch.is_grad_enabled():  # in a function of its own, autograd tells that too late
        states, weight = states.detach(), weight.detach()
    loss, nll = _ProjectedLoss.apply(states, weight, targets, smoothing)
    return loss, nll


class _ProjectedLoss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, states: Tensor, weight: Tensor, targets: Tensor, smoothing: float
    ) -> Tuple[Tensor, Tensor]:
        kind = F.linear(states[:0], weight).dtype  # autocast's type, if it is on
        low_states, low_weight = states.to(kind), weight.to(kind)
        # Half precision would lose small values of a gradient that is not scaled yet.
        exact = low_weight.float() if kind == torch.float16 else low_weight
        kept = torch.float32 if states.dtype == torch.float16 else states.dtype
        of_states = torch.empty_like(states, dtype=kept) if ctx.needs_input_grad[0] else None
        of_weight = torch.zeros_like(weight).float() if ctx.needs_input_grad[1] else None
        loss, nll = (torch.zeros((), device=states.device) for _ in range(2))
        spread = smoothing / (len(weight) - 1)
        with torch.autocast(states.device.type, enabled=False):
            of_all = low_weight.float().sum(0)  # Σ_v z_v = h · Σ_v w_v
            size = max(CHUNK // 2, min(CHUNK, LOGITS // len(weight)))
            for begin in range(0, len(states), size):
                part = slice(begin, begin + size)
                h, target = low_states[part], targets[part].unsqueeze(1)
                # The term -ε_V, the same for all symbols, is added to the products below.
                logits, added = F.linear(h, low_weight), spread + smoothing - 1
                wrong, total, slope = _compare(logits, target, added)
                nll += wrong.sum()
                loss += (1 - smoothing - spread) * wrong.sum()
                loss += spread * (len(weight) * total.sum() - (h.float() @ of_all).sum())
                slope = slope.to(exact.dtype)
                if of_states is not None:
                    product = slope @ exact
                    of_states[part] = (product.float() - spread * of_all).to(kept)
                if of_weight is not None:
                    of_weight += slope.t() @ h.to(exact.dtype)
            if of_weight is not None:
                of_weight -= spread * low_states.sum(0, dtype=torch.float32)
        if of_weight is not None and weight.dtype != torch.float16:
            of_weight = of_weight.to(weight.dtype)
        ctx.save_for_backward(of_states, of_weight)
        ctx.types = states.dtype, weight.dtype
        ctx.mark_non_differentiable(nll)
        return loss, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes: Tensor) -> Tuple[Any, ...]:
        gradients = (
            None if each is None else (each * slopes[0]).to(dtype)
            for each, dtype in zip(ctx.saved_tensors, ctx.types)
        )
        return (*gradients, None, None)


def _compare(z: Tensor, target: Tensor, added: float) -> Tuple[Tensor, Tensor, Tensor]:
    """logsumexp(z) - z_t, logsumexp(z), and softmax(z) + added [v = t], of each row.

    Args:
        z: (rows, vocabulary) of any type; may be overwritten.
        target: (rows, 1).
        added: a number that is added to the target's probability.

    Returns:
        (rows, 1) and (rows, 1) float32, and (rows, vocabulary) float32, or z's bfloat16.
    """
    if z.dtype == torch.bfloat16 and choose_backend(z.device).unsupported(z) is None:
        return _compare_natively(z, target, added)
    scores = z.float().log_softmax(1)  # one pass over memory instead of five
    wrong = -scores.gather(1, target)
    total = z.gather(1, target) + wrong
    return wrong, total, scores.exp_().scatter_add_(1, target, torch.full_like(wrong, added))


def _compare_natively(z: Tensor, target: Tensor, added: float) -> Tuple[Tensor, Tensor, Tensor]:
    """See :func:`_compare`; the native kernel takes a fifth of the time."""
    wrong, total = (torch.empty(target.shape, dtype=torch.float32) for _ in range(2))
    target = target.contiguous()
    native.library().probabilities_run(
        z.data_ptr(), *z.shape, target.data_ptr(), added,
        wrong.data_ptr(), total.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return wrong, total, z
