"""Precision, recall and F over a corpus whose sentences several annotators corrected.

A hypothesis is compared with each annotator's edits, and the annotator whose edits fit it best
counts for the sentence.  "Best" means the highest F of the corpus so far, this sentence included
(Dahlmeier & Ng 2012 and the CoNLL-2014 shared task, Ng et al. 2014).  The choice thus depends on
the sentences before, and each resampled corpus has to choose again.  :meth:`EditCounts.scores`
therefore handles all resamples at once.
"""

from dataclasses import dataclass
from typing import Callable, Dict, List, Sequence, Tuple

import numpy as np

#: Of one hypothesis against one annotator: edits matched, edits proposed, edits of the annotator.
Counts = Tuple[int, int, int]

#: Preferences among candidate counts ``(…, 3)``, the first first, each ``(…,)``: more is better.
Preferences = Callable[[np.ndarray, float], List[np.ndarray]]


def ratio(numerator: np.ndarray, denominator: np.ndarray, nothing: float) -> np.ndarray:
    """Element by element; ``nothing`` where the denominator is 0."""
    out = np.full(np.shape(numerator), nothing)
    return np.divide(numerator, denominator, out=out, where=denominator != 0)


def f_of_counts(counts: np.ndarray, beta: float) -> np.ndarray:
    """F of counts ``(…, 3)``; with nothing to propose and nothing proposed it is 1."""
    matched, proposed, gold = np.moveaxis(counts, -1, 0)
    return ratio((1 + beta**2) * matched, beta**2 * gold + proposed, nothing=1.0)


def precision_recall_f(
    counts: np.ndarray, beta: float
) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F of counts ``(…, 3)``, from 0 to 1, each ``(…,)``.

    Precision is 1 where nothing is proposed, and recall where there is nothing to propose.
    """
    matched, proposed, gold = np.moveaxis(counts, -1, 0)
    precision = ratio(matched, proposed, nothing=1.0)
    recall = ratio(matched, gold, nothing=1.0)
    weighted = (1 + beta**2) * precision * recall
    return precision, recall, ratio(weighted, beta**2 * precision + recall, nothing=0.0)


def maxmatch_preferences(counts: np.ndarray, beta: float) -> List[np.ndarray]:
    """How the M2 scorer chooses: F, then matches, then few edits proposed and in the gold."""
    matched, proposed, gold = np.moveaxis(counts, -1, 0)
    return [f_of_counts(counts, beta), matched, -(proposed + beta**2 * gold)]


@dataclass
class EditCounts:
    """Counts of every sentence against each of its annotators, and their scores.

    Attributes:
        counts: (sentences, annotators, 3) of :data:`Counts`.
        present: (sentences, annotators) which annotators there are; the others are padding.
    """

    counts: np.ndarray
    present: np.ndarray
    beta: float = 0.5
    preferences: Preferences = maxmatch_preferences

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[Counts]],
        beta: float = 0.5,
        preferences: Preferences = maxmatch_preferences,
    ) -> "EditCounts":
        """From the counts of each sentence, an entry an annotator, at least one."""
        annotators = max(map(len, rows))
        counts = np.zeros((len(rows), annotators, 3))
        present = np.zeros((len(rows), annotators), dtype=bool)
        for sentence, row in enumerate(rows):
            counts[sentence, : len(row)] = row
            present[sentence, : len(row)] = True
        return cls(counts, present, beta, preferences)

    def scores(self, samples: np.ndarray) -> Dict[str, np.ndarray]:
        """Precision, recall and F in percent.

        Args:
            samples: (samples, sentences) the sentences of each sample, in their order.

        Returns:
            three scores by name, each (samples,).
        """
        found = precision_recall_f(self.totals(samples), self.beta)
        named = dict(zip(("precision", "recall", f"F{self.beta:g}"), found))
        return {name: 100 * score for name, score in named.items()}

    def totals(self, samples: np.ndarray) -> np.ndarray:
        """Counts over each sample, ``(samples, 3)``, of the annotators that fit best."""
        if self.counts.shape[1] == 1:
            one: np.ndarray = self.counts[samples, 0].sum(1)
            return one
        totals = np.zeros((len(samples), 3))
        for sentences in samples.T:  # the next sentence of every sample
            candidates = totals[:, None] + self.counts[sentences]  # (samples, annotators, 3)
            best = self.present[sentences]
            for preference in self.preferences(candidates, self.beta):
                ranked = np.where(best, preference, -np.inf)
                best = best & (ranked == ranked.max(1, keepdims=True))
            totals = candidates[np.arange(len(samples)), best.argmax(1)]  # the first of equals
        return totals
