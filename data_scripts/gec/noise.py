"""Errors put into a line: how many, of which kinds, and where."""

import itertools
import math
from bisect import bisect
from collections import Counter
from typing import Counter as CounterOf
from typing import Dict, List, NamedTuple, Optional, Tuple

from confusion import Lexicon
from draws import Draws
from error_types import ERROR_TYPES, Change, ErrorType, Sentence
from linestreams import clean

#: Kinds that are tried for an error before it is given up: not every one fits every line.
KINDS_TRIED = 4
#: Places that are tried for an error of one kind: so many for each word, and at most.
PLACES_A_WORD = 3
MOST_PLACES = 100


class Pair(NamedTuple):
    """A line with errors and without."""

    wrong: str
    right: str
    #: How many errors there are of each kind.
    errors: CounterOf[str]
    #: How many words errors could be made in.
    words: int


class Noise:
    """Makes errors; equal settings make equal errors in equal lines of equal numbers."""

    def __init__(
        self,
        lexicon: Lexicon,
        mix: Dict[str, float],
        error_rate: float,
        clean_share: float,
        seed: int,
    ) -> None:
        self.lexicon = lexicon
        self.kinds: List[Tuple[str, ErrorType]] = [(name, ERROR_TYPES[name]) for name in mix]
        self.weights = list(itertools.accumulate(mix.values()))
        self.clean_share = clean_share
        #: Of the lines that are not left clean.
        self.mean_rate = error_rate / (1 - clean_share)
        self.seed = seed
        self.draws = Draws()

    def pair(self, copy: int, number: int, line: str) -> Pair:
        """Put errors into a line.

        Args:
            copy: errors of another copy of the text are independent.
            number: of the line, from 0.
            line: raw text.
        """
        right = clean(line)
        self.draws.restart(self.seed, copy, number)
        sentence = Sentence(right)
        plain = sum(map(bool, sentence.cores))
        made: CounterOf[str] = Counter()
        changes: Dict[int, Change] = {}
        taken = [False] * len(sentence)
        for _ in range(self._how_many(plain)):
            kind = self._one_error(sentence, taken, changes)
            if kind:
                made[kind] += 1
        wrong = " ".join(_changed(sentence.words, changes))
        if wrong in ("", right):  # every line stays a line, and errors may undo each other
            return Pair(right, right, Counter(), plain)
        return Pair(wrong, right, made, plain)

    def _how_many(self, words: int) -> int:
        """How many errors a line with so many plain words gets.

        The rate of each line is drawn from a gamma distribution of shape 2 (writers differ,
        few make very many errors), so that the mean over lines is ``error_rate``.
        """
        if self.draws.chance(self.clean_share):
            return 0
        waits = math.log(1 - self.draws.uniform()) + math.log(1 - self.draws.uniform())
        rate = min(-waits / 2 * self.mean_rate, 1.0)
        return int(rate * words + self.draws.uniform())

    def _one_error(
        self, sentence: Sentence, taken: List[bool], changes: Dict[int, Change]
    ) -> Optional[str]:
        """Enter one more error; its kind, or ``None`` if none of those drawn fits."""
        for _ in range(KINDS_TRIED):
            drawn = bisect(self.weights, self.draws.uniform() * self.weights[-1])
            name, kind = self.kinds[min(drawn, len(self.kinds) - 1)]
            if self._place(kind, sentence, taken, changes):
                return name
        return None

    def _place(
        self,
        kind: ErrorType,
        sentence: Sentence,
        taken: List[bool],
        changes: Dict[int, Change],
    ) -> bool:
        """Enter an error of this kind at a random word where it fits and none is yet."""
        for _ in range(min(PLACES_A_WORD * len(sentence), MOST_PLACES)):
            index = self.draws.below(len(sentence))
            if taken[index]:
                continue
            change = kind(sentence, index, self.draws, self.lexicon)
            if change is None:
                continue
            end = index + change[0]
            if not any(taken[index:end]) and change[1] != sentence.words[index:end]:
                taken[index:end] = [True] * change[0]
                changes[index] = change
                return True
        return False


def _changed(words: List[str], changes: Dict[int, Change]) -> List[str]:
    result: List[str] = []
    position = 0
    for index in sorted(changes):
        width, new = changes[index]
        result += words[position:index]
        result += new
        position = index + width
    return result + words[position:]
