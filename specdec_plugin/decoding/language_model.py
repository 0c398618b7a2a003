"""A language model beside the verifier: shallow fusion (Gulcehre et al. 2015)."""

from typing import Any, Dict, Optional

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from ..engine.output_projection import Scores


class FedTokens:
    """What a language model holds of a batch in progress.

    Attributes:
        tokens: (rows, fed) long; (0, 0) before the first step.
        kept: what the decoder has computed of them; None where it computes all in each step.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.tokens = torch.empty(0, 0, dtype=torch.long)
        incremental = isinstance(decoder, FairseqIncrementalDecoder)
        self.kept: Optional[Dict[str, Any]] = {} if incremental else None

    def feed(self, new: Tensor) -> Tensor:
        """All tokens, (rows, fed), with the newest ones, (rows, 1), at their end."""
        self.tokens = torch.cat([self.tokens, new], dim=1) if self.tokens.numel() else new
        return self.tokens

    def keep(self, lengths: Tensor, longest: int) -> None:
        """Nothing: a search accepts all that it feeds."""

    def fork(self, parents: Tensor, sentences: Tensor, left: Optional[Tensor] = None) -> None:
        """Continue with copies of these rows; see :meth:`.DecoderState.fork`."""
        self.tokens = self.tokens.index_select(0, parents)
        if self.kept is not None:
            self._decoder.reorder_incremental_state_scripting(self.kept, parents)


class LanguageModel:
    """Adds a language model's log-probabilities to those of the verifier, as fairseq's search does.

    A symbol's score is ``log p(y | x) + weight · log p_LM(y)``. fairseq runs the model over the
    whole output in each step; here its decoder keeps what it has computed.

    Args:
        model: fairseq's language model of the target's symbols, on the verifier's device.
        weight: of its log-probabilities.
    """

    def __init__(self, model: Any, weight: float) -> None:
        model.eval()  # which returns nothing, once fairseq has prepared it for generation
        self._model, self._weight = model, weight

    def start(self) -> FedTokens:
        """Begin a batch."""
        return FedTokens(self._model.decoder)

    def fused(self, scores: Scores, state: FedTokens, fed: Tensor) -> Scores:
        """Scores of what follows the newest tokens.

        Args:
            scores: the verifier's, (rows, 1, vocabulary).
            state: from :meth:`start`.
            fed: (rows, 1) long, what the verifier was fed.

        Returns:
            (rows, 1, vocabulary), no log-probabilities any more; normalisers of 0, (rows, 1).
        """
        tokens = state.feed(fed)
        kept = {} if state.kept is None else {"incremental_state": state.kept}
        found = self._model(tokens, **kept)
        own = self._model.get_normalized_probs(found, log_probs=True, sample=None)[:, -1:]
        values = scores.values - scores.normalisers.unsqueeze(-1) + self._weight * own
        return Scores(values, torch.zeros_like(scores.normalisers))
