"""fairseq's beam search.

A step scores what may follow each of a sentence's B beams, draws the 2B best candidates, and sorts
them: an end of sentence among the first B finishes a hypothesis; the first B others are the next
beams. A sentence is done with B finished hypotheses, or at the length limit. The score is divided
by a power of the length only when a hypothesis is finished.
"""

from typing import Optional, Type, Union

import torch
from fairseq.search import Search

from ...decoding.lengths import Lengths
from ...decoding.state import Batch
from ...decoding.statistics import Statistics
from ...decoding.verifier import Verifier
from ...engine.weights import check_deferred
from ...fairseq_compat.search import unended
from .beams import Hypotheses
from .captured import CapturedBeamSearch
from .native import NativeBeamSearch, StepDrafter
from .strategy_search import StrategySearch, strategy_for
from .torch_search import TorchBeamSearch


class BeamSearch:
    """Finds what fairseq's ``SequenceGenerator`` finds.

    Args:
        verifier: scores the candidates.
        statistics: where steps and time are counted.
        lengths: fairseq's length options.
        beams: B ≥ 1.
        ahead: searches ahead of the verifier, where the kernels search; None: nobody does.
        workers: that the kernels search with; 0: as many as threads.
        strategy: of fairseq, which chooses the candidates; None: the most probable ones.
    """

    measured = None

    def __init__(
        self,
        verifier: Verifier,
        statistics: Statistics,
        lengths: Lengths,
        beams: int,
        ahead: Optional[StepDrafter] = None,
        workers: int = 0,
        strategy: Optional[Search] = None,
    ) -> None:
        self._strategy = strategy
        self.verifier, self.statistics, self._workers = verifier, statistics, workers
        self.lengths, self.beam_size, self._ahead = lengths, beams, ahead
        self._native: Optional[NativeBeamSearch] = None

    def forget(self) -> None:
        """Forget whether drafts paid."""
        if self._native is not None:
            self._native.guard.forget()

    def decode(self, batch: Batch) -> Hypotheses:
        """Decode a batch.

        Returns:
            for each sentence up to B hypotheses, the best first: ``tokens`` and
            ``positional_scores`` (length,), ``score``, ``steps`` and an empty ``history``.

        Raises:
            PluginError: no hypothesis of a sentence can end.
        """
        self.verifier.refresh()
        found = self._found(batch)
        if not all(found):
            raise unended(sum(not each for each in found))
        # All scores at once: on a GPU, the host waits for what it reads.
        scores = iter(torch.stack([each["score"] for row in found for each in row]).tolist())
        for number, unordered in enumerate(found):
            own = [-score for _, score in zip(unordered, scores)]
            order = sorted(range(len(own)), key=own.__getitem__)
            hypotheses = found[number] = [unordered[index] for index in order]
            steps = max(len(each["tokens"]) for each in hypotheses)
            for each in hypotheses:
                each.update(steps=steps, history=[])
            self.statistics.tokens += len(hypotheses[0]["tokens"])
            self.statistics.iterations += steps
        self.statistics.sentences += batch.size
        self.statistics.batches += 1
        return found

    def _found(self, batch: Batch) -> Hypotheses:
        """The finished hypotheses of each sentence, by who can search the batch soonest."""
        args = self.verifier, self.lengths, self.beam_size
        strategy = strategy_for(self._strategy, batch)
        size = self.beam_size
        if NativeBeamSearch.unsupported(self.verifier, batch, size, strategy) is None:
            own = self._ahead, self._workers
            self._native = self._native or NativeBeamSearch(*args, *own)
            found, doubtful = self._native.run(batch, strategy)
            if doubtful:
                again = self._on_operators(batch.left(doubtful), strategy)
                for sentence, hypotheses in zip(doubtful, again):
                    found[sentence] = hypotheses
            return found
        return self._on_operators(batch, strategy)

    def _on_operators(self, batch: Batch, strategy: Optional[Search]) -> Hypotheses:
        """:meth:`_found` by PyTorch's operators."""
        args = self.verifier, self.lengths, self.beam_size, batch
        try:
            self.verifier.start(batch, self.beam_size)
            check_deferred()
            if strategy is not None:
                return StrategySearch(strategy, *args).run()
            captured = CapturedBeamSearch.supports(self.verifier, batch, self.beam_size)
            search: Type[Union[CapturedBeamSearch, TorchBeamSearch]]
            search = CapturedBeamSearch if captured else TorchBeamSearch
            return search(*args).run()
        finally:
            self.verifier.end()
