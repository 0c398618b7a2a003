"""fairseq's options about the lengths of outputs."""

import sys
from dataclasses import dataclass

from torch import Tensor


@dataclass
class Lengths:
    """fairseq's length options.

    Attributes:
        max_len_a: with ``max_len_b``, the limit is ``a · padded source length + b``.
        max_len_b: see ``max_len_a``.
        min_len: tokens before an end of sentence may come.
        max_positions: positions that every model has.
        unk_penalty: ``--unkpen``.
        len_penalty: ``--lenpen``.
        normalize: divide scores by length (not ``--unnormalized``).
        no_repeat_ngram_size: ``--no-repeat-ngram-size``.
        match_source_len: ``--match-source-len``.
    """

    max_len_a: float = 0
    max_len_b: int = 200
    min_len: int = 1
    max_positions: int = sys.maxsize
    unk_penalty: float = 0.0
    len_penalty: float = 1.0
    normalize: bool = True
    no_repeat_ngram_size: int = 0
    match_source_len: bool = False

    def score(self, total: Tensor, length: int) -> Tensor:
        """The score of hypotheses of one length: (…) from their log-probabilities, (…)."""
        return total / float(length) ** self.len_penalty if self.normalize else total
