"""GLEU, the metric of fluency edits, in its version of 2016.

Courtney Napoles, Keisuke Sakaguchi, Matt Post and Joel Tetreault (2015): Ground Truth for
Grammatical Error Correction Metrics; and (2016): GLEU Without Tuning.  BLEU's n-gram precision,
with a penalty for n-grams of the source that the reference does not have: a hypothesis should
have changed those.  The version of 2016 has no weight to tune, and several references do not
count together: for each sentence one of them is drawn at random, and the score is the mean
over many such draws.

Not to be confused with the GLEU of Wu et al. (2016), which compares without the source.
"""

import random
from dataclasses import dataclass
from typing import Dict, List, Sequence

import numpy as np

from .ngrams import ngram_counts

Tokens = Sequence[str]
ORDER = 4
#: Draws of references that are multiplied with the samples at once, to bound the memory.
DRAWS_AT_ONCE = 50


def sentence_statistics(source: Tokens, hypothesis: Tokens, reference: Tokens) -> List[int]:
    """Statistics that a corpus sums: both lengths, then matches and n-grams for n = 1 … 4.

    Matches are the n-grams that hypothesis and reference share, less those that the hypothesis
    shares with the source and that the reference lacks altogether; never below 0.

    Returns:
        hypothesis length, reference length, and for each n: matches, n-grams of the hypothesis.
    """
    statistics = [len(hypothesis), len(reference)]
    for n in range(1, ORDER + 1):
        ours, wanted = ngram_counts(hypothesis, n), ngram_counts(reference, n)
        left = ngram_counts(source, n)
        for ngram in wanted:
            left.pop(ngram, None)
        matches = sum((ours & wanted).values()) - sum((ours & left).values())
        statistics += [max(matches, 0), max(len(hypothesis) + 1 - n, 0)]
    return statistics


def gleu(sums: np.ndarray) -> np.ndarray:
    """GLEU, from 0 to 1, of summed statistics ``(…, 10)``; 0 where one of them is 0."""
    hypothesis, reference, *ngrams = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.log(np.stack(ngrams[::2]) / np.stack(ngrams[1::2])).mean(0)
        score = np.exp(np.minimum(0, 1 - reference / hypothesis) + precision)
    return np.where((sums == 0).any(-1), 0.0, score)


def reference_draws(draws: int, sentences: int, references: int) -> np.ndarray:
    """Numbers of references, ``(draws, sentences)``.

    They are those of the authors' program, so that scores equal published ones: with other
    draws the mean of 500 would differ by some 0.04.  It seeds Python's Mersenne Twister
    with 101 j for draw j, and takes the number that the next random share falls on.
    """
    drawn = np.empty((draws, sentences), dtype=int)
    for draw, row in enumerate(drawn):
        share = random.Random(101 * draw).random
        row[:] = [int(share() * references) for _ in range(sentences)]
    return drawn


@dataclass
class Gleu:
    """Statistics of every sentence with each reference, and which reference each draw takes.

    Attributes:
        statistics: (sentences, references, 10) of :func:`sentence_statistics`.
        draws: (draws, sentences) numbers of references.
    """

    statistics: np.ndarray
    draws: np.ndarray

    @classmethod
    def of(
        cls,
        sources: Sequence[Tokens],
        hypotheses: Sequence[Tokens],
        references: Sequence[Sequence[Tokens]],
        iterations: int = 500,
    ) -> "Gleu":
        """From tokenised sentences.

        Args:
            references: the sentences of each reference.
            iterations: random draws; one suffices, and is taken, where there is one reference.
        """
        statistics = np.array(
            [
                [sentence_statistics(source, hypothesis, each) for each in wanted]
                for source, hypothesis, *wanted in zip(sources, hypotheses, *references)
            ],
            dtype=float,
        )
        draws = iterations if len(references) > 1 else 1
        return cls(statistics, reference_draws(draws, len(statistics), len(references)))

    def scores(self, samples: np.ndarray) -> Dict[str, np.ndarray]:
        """GLEU in percent.

        Args:
            samples: (samples, sentences) the sentences of each sample.

        Returns:
            the mean over the draws, by its name, (samples,).
        """
        sentences, _, width = self.statistics.shape
        often = np.stack([np.bincount(each, minlength=sentences) for each in samples])
        weights = often.astype(float)  # (samples, sentences)
        total = np.zeros(len(samples))
        for start in range(0, len(self.draws), DRAWS_AT_ONCE):
            draws = self.draws[start : start + DRAWS_AT_ONCE]
            drawn = self.statistics[np.arange(sentences)[:, None], draws.T]
            sums = weights @ drawn.reshape(sentences, -1)
            total += gleu(sums.reshape(len(samples), len(draws), width)).sum(1)
        return {"GLEU": 100 * total / len(self.draws)}
