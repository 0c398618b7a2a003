"""n-grams of tokenised sentences."""

from collections import Counter
from typing import Counter as CounterType
from typing import Sequence, Tuple

NGram = Tuple[str, ...]


def ngram_counts(tokens: Sequence[str], n: int) -> CounterType[NGram]:
    """How often each n-gram occurs.

    >>> sorted(ngram_counts("a b a b".split(), 2).items())
    [(('a', 'b'), 2), (('b', 'a'), 1)]
    """
    return Counter(zip(*(tokens[start:] for start in range(n))))
