"""A record of parallel Jacobi decoding by iteration (Santilli et al., 2023, Algorithm 1)."""

import logging
from typing import Any, Dict, NamedTuple

import torch
from torch import Tensor

from ...decoding.state import Batch
from ...decoding.verifier import Verifier
from .observe import predict, probabilities

logger = logging.getLogger(__name__)


class Recording(NamedTuple):
    """The iterates of one sentence of m tokens, the end of sentence included.

    The initial guess and the pass that finds nothing changed are not among them.

    Attributes:
        tokens: (iterations, m) long: row t is the iterate of iteration t + 1.
        probabilities: (iterations, m) float32: of each of them, given the tokens before
            it in the iterate before.
    """

    tokens: Tensor
    probabilities: Tensor

    @property
    def right(self) -> Tensor:
        """(iterations, m) true where the token equals the final output."""
        return self.tokens == self.tokens[-1]


def record(verifier: Verifier, batch: Batch, output: Tensor) -> Recording:
    """Iterate from padding to the fixed point, as Algorithm 1 does with equation 5 as its end.

    The fixed point is the greedy output, and is reached in m iterations at most
    (Proposition 1).

    Args:
        verifier: started with ``batch``.
        batch: of one sentence.
        output: (m,) the output of greedy decoding. The algorithm takes its length as known. A
            warning is logged if the fixed point is another output.
    """
    tokens, chances = [], []
    iterate = torch.full_like(output, batch.constraints.pad)
    for _ in range(len(output)):
        scores = predict(verifier, batch, iterate)
        best = scores.values.argmax(1)
        if torch.equal(best, iterate):
            break
        tokens.append(best)
        chances.append(probabilities(scores, best))
        iterate = best
    if not torch.equal(iterate, output):
        logger.warning(
            "Parallel Jacobi decoding ended in another output than greedy decoding: two tokens "
            "are almost equally probable, and rounding decides. The figure shows its own output."
        )
    return Recording(torch.stack(tokens).cpu(), torch.stack(chances).float().cpu())


def observe(verifier: Verifier, batch: Batch, hypothesis: Dict[str, Any]) -> Recording:
    """:func:`record`, as an observer of greedy decoding."""
    return record(verifier, batch, hypothesis["tokens"].to(batch.device))
