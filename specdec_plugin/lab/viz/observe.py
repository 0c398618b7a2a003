"""The verifier's scores of a whole output, computed in one pass when the output is known."""

from typing import Any, Callable, Dict, List

import torch
from torch import Tensor

from ...decoding.loop import DecodingLoop
from ...decoding.state import Batch
from ...decoding.steps import VerifiedStep
from ...decoding.verifier import Verifier
from ...engine.output_projection import Scores

#: Looks at a finished hypothesis; the verifier holds the batch, with nothing accepted.
Observer = Callable[[Verifier, Batch, Dict[str, Any]], Any]


def predict(verifier: Verifier, batch: Batch, tokens: Tensor) -> Scores:
    """One pass over a sentence: scores of the token at each position, given those before it.

    Nothing is accepted, so it may be called again and again. The rules of decoding apply
    (never padding, no end of sentence too early, an end at the limit), as in the loop.

    Args:
        verifier: started with ``batch``.
        batch: of one sentence.
        tokens: (m,) any tokens; ``pad`` is fed as a token like others by an engine with
            a cache, and as fairseq feeds it, masked, by one without.

    Returns:
        (m, vocabulary), and normalisers (m,): position i given ``tokens[:i]``.
    """
    start = tokens.new_full((1,), batch.bos)
    fed = torch.cat([start, tokens[:-1]]).unsqueeze(0)  # (1, m)
    scores = verifier.scores(fed, batch.constraints.pad)
    batch.constraints.apply(scores.values, tokens.new_zeros(1), 0, 0, scores.normalisers)
    return Scores(scores.values[0], scores.normalisers[0])


def probabilities(scores: Scores, tokens: Tensor) -> Tensor:
    """The model's probability of a token at each position, (m,), from the scores of m positions."""
    chosen = scores.values.gather(1, tokens.unsqueeze(1)).squeeze(1)
    return (chosen - scores.normalisers).exp()


class ObservingLoop(DecodingLoop):
    """Decodes as another loop, then looks at the output.

    The encoder's output, the limits and the verifiers of an ensemble are thus those
    that the output was decoded with.

    Args:
        loop: a loop that verifies.
        observe: its result becomes ``observed`` of the hypothesis.
    """

    def __init__(self, loop: DecodingLoop, observe: Observer) -> None:
        super().__init__(loop.drafter, loop.step, loop.statistics, loop.keep_history)
        self.observe = observe

    def decode(self, batch: Batch) -> List[List[Dict[str, Any]]]:
        """Decode a batch of one sentence."""
        ((hypothesis,),) = super().decode(batch)
        assert isinstance(self.step, VerifiedStep)
        verifier = self.step.verifier
        verifier.start(batch)
        hypothesis["observed"] = self.observe(verifier, batch, hypothesis)
        return [[hypothesis]]
