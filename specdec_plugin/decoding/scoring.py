"""Scores of given targets: one pass of the verifier over all of their tokens."""

from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from fairseq import utils
from torch import Tensor

from .generator import ParallelGenerator
from .statistics import Statistics, counted


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


class ReferenceScorer:
    """Scores references as fairseq's ``SequenceScorer`` does, by packed weights.

    A target is a prefix that ends its sentence. The loop verifies a prefix as one draft, so that
    each target takes a single pass.

    Args:
        generator: decodes greedily. Its limit of length is set for each batch.
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
        if sample.get("target") is not None or prefix_tokens is None:
            found = self._forced(sample)
        else:
            found = Forced(prefix_tokens, self.eos if bos_token is None else bos_token)
        if found is None:
            scored: List[List[Dict[str, Any]]] = self.fairseqs.generate(models, sample)
            return scored
        # A tighter limit than the model's, after which tables of positions are made.
        self.generator.lengths.max_len_b = found.tokens.size(1)
        lists = self.generator.generate(models, sample, found.tokens, bos_token=found.bos)
        return [[_scored(each) for each in row] for row in lists]

    def _forced(self, sample: Dict[str, Any]) -> Optional[Forced]:
        """The targets of a batch; None where fairseq's scorer has to read them.

        A symbol that ends sentences may stand within a target, or be missing at its end. The model
        may have fewer positions, and fairseq then tells which.
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
        if not fits.all() or tokens.size(1) > self.generator.lengths.max_positions:
            return None
        return Forced(tokens, int(fed[0, 0]))


def _scored(hypothesis: Dict[str, Any]) -> Dict[str, Any]:
    """What fairseq's scorer returns of a hypothesis."""
    kept = {name: hypothesis[name] for name in ("tokens", "score", "positional_scores")}
    return {**kept, "attention": None, "alignment": None}
