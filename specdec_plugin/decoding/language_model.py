"""A language model beside the verifier: shallow fusion (Gulcehre et al. 2015)."""

from typing import Any, Dict, Optional, Union

import torch
from fairseq.models import FairseqIncrementalDecoder
from torch import Tensor

from ..engine import Backend, CachedDecoder, DecoderState, choose_backend
from ..engine.output_projection import Scores
from ..errors import PluginError
from ..fairseq_compat.language_models import positions_of


class IncrementalState:
    """What fairseq's decoder of a language model holds of a batch in progress.

    Attributes:
        tokens: (rows, fed) long; (0, 0) before the first step.
        computed: fairseq's incremental state; None where the decoder computes all in each step.
    """

    def __init__(self, decoder: Any) -> None:
        self._decoder = decoder
        self.tokens = torch.empty(0, 0, dtype=torch.long)
        incremental = isinstance(decoder, FairseqIncrementalDecoder)
        self.computed: Optional[Dict[str, Any]] = {} if incremental else None

    def feed(self, new: Tensor) -> Tensor:
        """All tokens, (rows, fed), with the newest ones, (rows, 1), at their end."""
        self.tokens = torch.cat([self.tokens, new], dim=1) if self.tokens.numel() else new
        return self.tokens

    def keep(self, lengths: Tensor, longest: int) -> None:
        """Nothing: a search accepts all that it feeds."""

    def fork(self, parents: Tensor, sentences: Tensor, left: Optional[Tensor] = None) -> None:
        """Continue with copies of these rows; see :meth:`.DecoderState.fork`."""
        self.tokens = self.tokens.index_select(0, parents)
        if self.computed is not None:
            self._decoder.reorder_incremental_state_scripting(self.computed, parents)


class LanguageModel:
    """Adds a language model's log-probabilities to those of the verifier, as fairseq's search does.

    A symbol's score is ``log p(y | x) + weight · log p_LM(y)``. fairseq runs the model over the
    whole output in each step. Here the kernels run a plain Transformer over the newest tokens, and
    others keep what they have computed.

    Args:
        model: fairseq's language model of the target's symbols, on the verifier's device.
        weight: of its log-probabilities.
        backend: who computes; None chooses.

    Attributes:
        engine: runs its decoder by the kernels; None: fairseq's does.
    """

    def __init__(self, model: Any, weight: float, backend: Optional[Backend] = None) -> None:
        model.eval()  # which returns nothing, once fairseq has prepared it for generation
        self._model, self.weight = model, weight
        backend = backend or choose_backend(next(model.parameters()).device)
        self.engine: Optional[CachedDecoder] = None
        if CachedDecoder.unsupported_alone(model.decoder, backend) is None:
            self.engine = CachedDecoder(model.decoder, backend=backend)

    @property
    def by_kernels(self) -> bool:
        """Whether the kernels run its layers."""
        return self.engine is not None

    @property
    def max_positions(self) -> int:
        """The most tokens that it reads."""
        return positions_of(self._model)

    def refresh(self) -> None:
        """Pack weights again where they have changed."""
        if self.engine is not None:
            self.engine.refresh()

    def start(self, rows: int, capacity: int, beams: int) -> Union[DecoderState, IncrementalState]:
        """Begin a batch, after :meth:`refresh`; see :meth:`.CachedDecoder.start`."""
        if self.engine is not None:
            return self.engine.start_alone(rows, capacity, beams)
        return IncrementalState(self._model.decoder)

    def fused(self, scores: Scores, state: Any, fed: Tensor, suppressed_id: int) -> Scores:
        """Scores of what follows the newest tokens.

        Args:
            scores: the verifier's, (rows, 1, vocabulary).
            state: from :meth:`start`.
            fed: (rows, 1) long, what the verifier was fed.
            suppressed_id: a symbol that the verifier has ruled out.

        Returns:
            (rows, 1, vocabulary), no log-probabilities any more; normalisers of 0, (rows, 1).
        """
        own = self.weight * self._log_probabilities(state, fed, suppressed_id)
        values = scores.values - scores.normalisers.unsqueeze(-1) + own
        return Scores(values, torch.zeros_like(scores.normalisers))

    def _log_probabilities(self, state: Any, fed: Tensor, suppressed_id: int) -> Tensor:
        """(rows, 1, vocabulary); see :meth:`fused`."""
        if self.engine is not None:
            features = self.engine.feed(state, fed)
            scores = self.engine.projection.scores(features, 1.0, suppressed_id)
            return scores.values - scores.normalisers.unsqueeze(-1)
        tokens = state.feed(fed)
        if tokens.size(1) > self.max_positions:
            raise PluginError(
                f"--lm-path has {self.max_positions} positions, and a longer output was asked for: "
                "leave out --match-source-len, or --lm-path."
            )
        more = {} if state.computed is None else {"incremental_state": state.computed}
        output = self._model(tokens, **more)
        found: Tensor = self._model.get_normalized_probs(output, log_probs=True, sample=None)
        return found[:, -1:]
