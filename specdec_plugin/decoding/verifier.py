"""The model that is accelerated, or several of them (an ensemble)."""

import ctypes
import math
from typing import Any, ContextManager, List, Optional, Sequence, Tuple

import torch
from torch import Tensor

from ..engine import CachedDecoder, Engine
from ..engine.output_projection import Scores
from ..engine.threads import one_thread
from ..vocab.state_sample import StateSample
from .ensemble import Others
from .language_model import LanguageModel
from .state import Batch, Rows
from .statistics import Statistics


class Verifier:
    """Log-probabilities of the models in ``--path``, averaged as fairseq averages.

    With a language model, scores are the sums of both; see :class:`.LanguageModel`.

    Args:
        engines: one for each model.
        statistics: where time is counted.
        temperature: divides the logits, as fairseq's ``--temperature``.
        certified: let 8-bit scores find the symbols that might be the best, and score those in
            float32, wherever the kernels verify a draft in one call.
        approximate_scores: normalise by the 8-bit scores of all but the best symbols then.
        language_model: whose scores are added, where a search feeds one token a step; None: no
            scores are added.

    Attributes:
        scored: whether anybody reads scores; if not, a certified verifier normalises none.
        gains_unscored: whether to certify where nobody reads scores.
        sample: where the kernels record states of the first model while they verify drafts; None:
            nowhere.
        states: of each engine, and of the language model behind them, for the batch in progress.
        hidden: (rows, width, dim) what the first model's decoder gave for the tokens that were
            last fed, before it is projected; None where the engine does not tell.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        statistics: Statistics,
        temperature: float = 1.0,
        certified: bool = False,
        approximate_scores: bool = False,
        language_model: Optional[LanguageModel] = None,
    ) -> None:
        self.engines = engines
        self.statistics = statistics
        self.temperature = temperature
        self.certified = certified
        self.approximate_scores = approximate_scores
        self.scored, self.gains_unscored = True, False
        self.sample: Optional[StateSample] = None
        self.language_model = language_model
        self.states: List[Any] = []
        self._symbols = 0  # of the vocabulary, once something was scored
        self.hidden: Optional[Tensor] = None

    @property
    def decoder(self) -> CachedDecoder:
        """The first model's decoder, where the cache serves it."""
        engine = self.engines[0]
        assert isinstance(engine, CachedDecoder)
        return engine

    def others(self) -> Others:
        """The models behind the first one, where the cache serves them."""
        engines = [each for each in self.engines[1:] if isinstance(each, CachedDecoder)]
        beside = self.language_model
        if beside is None or beside.engine is None:
            return Others(engines)
        return Others([*engines, beside.engine], beside.weight)

    @property
    def static(self) -> bool:
        """Whether the first model decodes in tensors that stay where they are, as on a GPU."""
        engine = self.engines[0]
        return isinstance(engine, CachedDecoder) and engine.backend.static

    def forgo_scores(self) -> None:
        """Compute no log-probabilities where this saves time."""
        self.scored = False
        self.certified = self.certified or self.gains_unscored

    def refresh(self) -> None:
        """Pack weights again where they have changed."""
        for engine in self.engines:
            if isinstance(engine, CachedDecoder):
                engine.refresh()
        if self.language_model is not None:
            self.language_model.refresh()

    def start(self, batch: Batch, beams: int = 1) -> None:
        """Project the encoder outputs of a batch and empty the caches, after :meth:`refresh`.

        Args:
            batch: the batch.
            beams: the most rows that a sentence will have.
        """
        self.end()  # what the batch before had may serve this one
        capacity = min(batch.constraints.max_len + 1, 256)
        with self.statistics.timed("verifier"):
            self.states = [
                engine.start(out, capacity, beams)
                for engine, out in zip(self.engines, batch.encoder_outs)
            ]
        if self.language_model is not None:
            self.states.append(self.language_model.start(batch.size, capacity, beams))

    def end(self) -> None:
        """Let go of a batch: its caches, and keys and values of its sources."""
        self.states, self.hidden = [], None

    def describe_queue(
        self, batch: Batch, call: Any, source: Any
    ) -> Tuple[Optional[int], List[Any]]:
        """Describe a batch for kernels that decode it; as the decoder does."""
        longest = batch.constraints.max_len + 1
        with self.statistics.timed("verifier"):
            return self.decoder.describe_queue(batch.encoder_outs[0], longest, call, source)

    def describe_others(self, batch: Batch, call: Any) -> Any:
        """Describe the models behind the first one for kernels that decode a batch.

        Args:
            batch: the batch.
            call: its ``others`` and ``other_models`` are described.

        Returns:
            what has to be kept while the call is used.
        """
        others = self.others()
        if not others.engines:
            return None
        with self.statistics.timed("verifier"):
            calls, kept = others.describe_queue(batch)
        call.others, call.other_models = ctypes.addressof(calls), len(calls)
        return calls, kept

    def on_one_thread(self, vectors: int) -> ContextManager[None]:
        """Where PyTorch's operators work on scores, in turns with the kernels: :func:`.one_thread`.

        Args:
            vectors: how many are scored.
        """
        engines, beside = self.engines, self.language_model
        by_kernels = all(isinstance(each, CachedDecoder) and each.by_kernels for each in engines)
        # Another language model takes as long as its layers, not as its scores.
        by_kernels &= beside is None or beside.by_kernels
        return one_thread(vectors * self._symbols if by_kernels else None)

    def scores(self, fed: Tensor, suppressed_id: int) -> Scores:
        """Scores of what follows each fed token.

        Args:
            fed: (rows, width) the newest token of each row and its draft.
            suppressed_id: a symbol that is ruled out.

        Returns:
            (rows, width, vocabulary), and normalisers (rows, width).
        """
        each = [
            self._scores(engine, state, fed, suppressed_id)
            for engine, state in zip(self.engines, self.states)
        ]
        self._symbols = each[0].values.size(-1)
        found = self._mean(each)
        if self.language_model is None:
            return found
        with self.statistics.timed("verifier"):
            return self.language_model.fused(found, self.states[-1], fed, suppressed_id)

    def _mean(self, each: Sequence[Scores]) -> Scores:
        """The mean of the models' distributions."""
        if len(each) == 1:
            return each[0]
        lprobs = torch.stack([one.values - one.normalisers.unsqueeze(-1) for one in each])
        mean = torch.logsumexp(lprobs, dim=0) - math.log(len(each))
        return Scores(mean, torch.zeros_like(each[0].normalisers))

    def _scores(self, engine: Engine, state: Any, fed: Tensor, suppressed_id: int) -> Scores:
        if not isinstance(engine, CachedDecoder):
            with self.statistics.timed("verifier"):
                values = engine.logits(state, fed)
                if self.temperature == 1.0:  # They are normalised.
                    normalisers = values.new_zeros(values.shape[:-1])
                else:
                    values = values / self.temperature
                    normalisers = torch.logsumexp(values, dim=-1)
                values[..., suppressed_id] = -math.inf
                return Scores(values, normalisers)
        if engine is self.engines[0]:
            features = self.read(fed)
        else:
            with self.statistics.timed("verifier"):
                features = engine.feed(state, fed)
        with self.statistics.timed("projection"):
            return engine.projection.scores(features, self.temperature, suppressed_id)

    def read(self, fed: Tensor) -> Tensor:
        """(rows, width, dim), :attr:`hidden`: what the first model's decoder gives for tokens.

        Args:
            fed: (rows, width) long.
        """
        with self.statistics.timed("verifier"):
            self.hidden = self.decoder.feed(self.states[0], fed)
        return self.hidden

    def spent(self, seconds: float, scoring: float) -> None:
        """Count time that was spent elsewhere on verifying, ``scoring`` of it on projecting."""
        self.statistics.seconds["verifier"] += seconds - scoring
        self.statistics.seconds["projection"] += scoring

    def keep(self, rows: Rows) -> None:
        """Keep in the caches what is now accepted: all chosen tokens but the newest."""
        for state in self.states:
            state.keep(rows.lengths, rows.longest)

    def select(self, rows: Tensor) -> None:
        """Continue with these rows."""
        for state in self.states:
            state.select(rows)
