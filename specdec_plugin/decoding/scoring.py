"""Scores of given targets: each is the draft of one pass of the verifier."""

from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import torch
from fairseq import utils
from torch import Tensor

from ..engine.uncached_decoder import least_input
from .generator import ParallelGenerator
from .state import Batch, Draft, Rows
from .statistics import Statistics, counted
from .steps import Step

#: Positions that the kernels score at once, so that states stay in the processor's cache. Of 256 to
#: 4,096, 512 and 1,024 were the fastest. A whole batch of 512 sentences took twice as long.
MOST_POSITIONS = 1024
#: Elsewhere, numbers of a table of positions and symbols, of which there are some copies.
MOST_SCORES = 1 << 26


class Forced(NamedTuple):
    """Targets that the decoder can be forced to write.

    Attributes:
        tokens: (rows, width), padded on the right; each row has one end, which is its last token.
        bos: what the decoder is fed first.
    """

    tokens: Tensor
    bos: int


class ScoringStatistics(Statistics):
    """Counters of a scorer: nothing is drafted or accepted."""

    def _counts(self) -> List[str]:
        return [f"{counted(self.sentences, 'target')}, {counted(self.tokens, 'token')}"]


class ScoringLoop:
    """Decodes batches of which each sentence has a prefix with an end: one pass, as of a draft.

    Args:
        models: the verifiers.
        step: verifies them.
        statistics: where they are counted.
        symbols: of the vocabulary.
    """

    measured = None

    def __init__(
        self, models: Sequence[Any], step: Step, statistics: Statistics, symbols: int
    ) -> None:
        self._models = models
        self.step, self.statistics, self._symbols = step, statistics, symbols

    def forget(self) -> None:
        """Nothing was learned."""

    def decode(self, batch: Batch) -> List[List[Dict[str, Any]]]:
        """See :meth:`.loop.DecodingLoop.decode`; prefixes are padded on the right."""
        prefix = batch.constraints.prefix
        assert prefix is not None
        self.step.refresh()
        # The one wait of a batch besides its passes: the host cuts it into slices.
        lengths: List[int] = prefix.ne(batch.constraints.pad).sum(1).tolist()
        found: List[List[Dict[str, Any]]] = []
        most = MOST_POSITIONS if self.step.queues() else MOST_SCORES // self._symbols
        for rows in slices(lengths, most):
            found += self._scored(self._part(batch, rows), lengths[rows.start : rows.stop])
        self.statistics.sentences += batch.size
        self.statistics.batches += 1
        self.statistics.tokens += sum(lengths)
        return found

    def _part(self, batch: Batch, rows: range) -> Batch:
        """Some rows of a batch, of which the kernels copy nothing."""
        if self.step.queues() or len(rows) == batch.size:
            return batch.left(rows)
        order = torch.arange(rows.start, rows.stop, device=batch.device)
        return batch.repeated(self._models, order)

    def _scored(self, part: Batch, lengths: Sequence[int]) -> Iterator[List[Dict[str, Any]]]:
        """A hypothesis for each of some sentences, whose targets have these lengths."""
        prefix = part.constraints.prefix
        assert prefix is not None
        prefix = prefix[:, : max(lengths)]
        rows = Rows(part._replace(constraints=part.constraints._replace(prefix=prefix)))
        try:
            self.step.start(part)
            self.step.take(rows, Draft(prefix, torch.tensor(lengths, device=prefix.device)))
        finally:
            self.step.end()
        for row in range(rows.size):
            yield [{**rows.hypothesis(row), "steps": 1, "history": []}]


def slices(lengths: Sequence[int], most: int) -> Iterator[range]:
    """Rows that follow one another, with at most so many positions, padding included.

    Args:
        lengths: of all rows.
        most: positions; a longer row is alone.
    """
    begin, longest = 0, 0
    for row, length in enumerate(lengths):
        longest = max(longest, length)
        if row > begin and (row + 1 - begin) * longest > most:
            yield range(begin, row)
            begin, longest = row, length
    if begin < len(lengths):
        yield range(begin, len(lengths))


class ReferenceScorer:
    """Scores references as fairseq's ``SequenceScorer`` does, by packed weights.

    A target is a prefix that ends its sentence.

    Args:
        generator: has a :class:`ScoringLoop`. Its limit of length is set for each batch.
        fairseqs: fairseq's scorer, for targets that cannot be forced.

    Attributes:
        eos: the symbol that ends a target.
        symbols_to_strip_from_output: what is not printed.
    """

    def __init__(self, generator: ParallelGenerator, fairseqs: Any) -> None:
        self.generator = generator
        self.fairseqs = fairseqs
        self.eos = generator.eos
        self.symbols_to_strip_from_output = fairseqs.symbols_to_strip_from_output

    def generate(
        self,
        models: Sequence[Any],
        sample: Dict[str, Any],
        prefix_tokens: Optional[Tensor] = None,
        constraints: Optional[Tensor] = None,
        bos_token: Optional[int] = None,
    ) -> List[List[Dict[str, Any]]]:
        """Score a batch.

        Args:
            models: as given to the generator.
            sample: fairseq's batch.
            prefix_tokens: (rows, width) the targets, where the batch has none, padded on the
                right. Each ends a sentence.
            constraints: are not read, as in fairseq.
            bos_token: what the decoder is fed first, where the batch has no targets.

        Returns:
            a list of one hypothesis for each sentence: ``tokens`` and ``positional_scores``
            (length,), and their mean ``score``. There is no attention.
        """
        if sample.get("target") is None and prefix_tokens is not None:
            bos = self.eos if bos_token is None else bos_token
            sample = _with_targets(sample, prefix_tokens, bos, self.generator.pad)
        found = self._forced(sample)
        if found is None:
            scored: List[List[Dict[str, Any]]] = self.fairseqs.generate(models, sample)
            return scored
        # A tighter limit than the model's, after which tables of positions are made.
        self.generator.lengths.max_len_b = found.tokens.size(1)
        given = {**sample, "constraints": None}
        lists = self.generator.generate(models, given, found.tokens, bos_token=found.bos)
        return [[_scored(each) for each in row] for row in lists]

    def _forced(self, sample: Dict[str, Any]) -> Optional[Forced]:
        """The targets of a batch; None where fairseq's scorer has to read them.

        A symbol that ends sentences may stand within a target, or be missing at its end. fairseq's
        scorer goes on behind the positions that a model names, where they are computed. Dynamic
        convolutions give other numbers for short inputs (:func:`.least_input`), and data of
        language models have beginnings that are not scored.
        """
        pad = self.generator.pad
        target, fed = sample.get("target"), sample["net_input"].get("prev_output_tokens")
        if target is None or fed is None or target.numel() == 0 or fed.shape != target.shape:
            return None
        tokens, fed = (
            utils.convert_padding_direction(each, pad, left_to_right=True) for each in (target, fed)
        )
        lengths = tokens.ne(pad).sum(1, keepdim=True)
        ends = tokens.eq(self.eos)
        shifted = fed[:, 1:].eq(tokens[:, :-1]) | tokens[:, 1:].eq(pad)
        fits = torch.stack(
            [
                (ends.sum(1, keepdim=True) == 1).all(),
                (ends.int().argmax(1, keepdim=True) + 1 == lengths).all(),
                shifted.all(),
                (fed[:, 0] == fed[0, 0]).all(),
            ]
        )
        least = max(least_input(model.decoder) for model in self.generator.models)
        within = least <= tokens.size(1) <= self.generator.lengths.max_positions
        if not within or "start_indices" in sample or not fits.all():
            return None
        return Forced(tokens, int(fed[0, 0]))


def _with_targets(sample: Dict[str, Any], targets: Tensor, bos: int, pad: int) -> Dict[str, Any]:
    """fairseq's batch with targets, (rows, width), and what a decoder is fed for them."""
    fed = targets.roll(1, 1).masked_fill(targets.eq(pad), pad)
    fed[:, 0] = bos
    return {
        **sample,
        "target": targets,
        "net_input": {**sample["net_input"], "prev_output_tokens": fed},
    }


def _scored(hypothesis: Dict[str, Any]) -> Dict[str, Any]:
    """What fairseq's scorer returns of a hypothesis."""
    kept = {name: hypothesis[name] for name in ("tokens", "score", "positional_scores")}
    return {**kept, "attention": None, "alignment": None}
