"""Repeated tokens, a sign of bad output after parallel drafting (Xia et al., 2023, B.3)."""

import itertools
from typing import Iterable, Sequence


def repetition_percent(hypotheses: Iterable[Sequence[int]]) -> float:
    """How many tokens equal the one before them in the same hypothesis.

    Tokens are those of the model (subwords): the paper's Table 9 speaks of tokens and
    does not define them further. Leave out ends of sentences, which would count and never repeat.

    Args:
        hypotheses: tokens of each.

    Returns:
        percent of all tokens; 0 if there are none.
    """
    repeated = tokens = 0
    for each in hypotheses:
        tokens += len(each)
        repeated += sum(one == before for before, one in itertools.pairwise(each))
    return 100 * repeated / max(1, tokens)
