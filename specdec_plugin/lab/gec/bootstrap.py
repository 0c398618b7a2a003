"""Confidence intervals by resampling sentences (Efron's bootstrap; for MT: Koehn 2004).

A corpus of as many sentences is drawn from the sentences with replacement, many times; the
interval holds the middle 95 % of the scores of those corpora.
"""

from dataclasses import dataclass
from typing import Dict, List, NamedTuple, Protocol

import numpy as np

from ...progress import Progress

#: Resamples scored at once, to bound the memory.
SAMPLES_AT_ONCE = 100


class Metric(Protocol):
    """A set of sentences with statistics, from which scores follow."""

    def scores(self, samples: np.ndarray) -> Dict[str, np.ndarray]:
        """Each score by name, ``(samples,)``, of samples given as ``(samples, sentences)``."""
        ...


class Estimate(NamedTuple):
    """A score, and the ends of its confidence interval (the score itself if there is none)."""

    score: float
    low: float
    high: float


@dataclass
class Difference:
    """How much better one hypothesis is than another, on the same sentences.

    Attributes:
        ours: scores of the one.
        others: the same scores of the other.
    """

    ours: Metric
    others: Metric

    def scores(self, samples: np.ndarray) -> Dict[str, np.ndarray]:
        """The differences; see :class:`Metric`."""
        others = self.others.scores(samples)
        return {
            f"{name} gain": values - others[name]
            for name, values in self.ours.scores(samples).items()
        }


def estimate(
    metric: Metric, sentences: int, samples: int = 1000, confidence: float = 0.95, seed: int = 1
) -> Dict[str, Estimate]:
    """The scores of all sentences in their order, with intervals.

    Args:
        sentences: how many the metric has.
        samples: corpora to draw; with 0 there are no intervals.
        confidence: the share of corpora whose scores lie in the interval.
        seed: of the draws; metrics of one set see the same corpora.
    """
    scores = metric.scores(np.arange(sentences)[None])
    random = np.random.default_rng(seed)
    drawn: Dict[str, List[np.ndarray]] = {name: [] for name in scores}
    progress = Progress(total=samples, unit="sample", desc="intervals", disable=not samples)
    with progress:
        for start in range(0, samples, SAMPLES_AT_ONCE):
            shape = (min(SAMPLES_AT_ONCE, samples - start), sentences)
            for name, values in metric.scores(random.integers(sentences, size=shape)).items():
                drawn[name].append(values)
            progress.update(shape[0])
    estimates: Dict[str, Estimate] = {}
    for name, (score,) in scores.items():
        low = high = score
        if samples:
            outside = (1 - confidence) / 2
            low, high = np.quantile(np.concatenate(drawn[name]), [outside, 1 - outside])
        estimates[name] = Estimate(float(score), float(low), float(high))
    return estimates


def for_json(estimates: Dict[str, Estimate], samples: int) -> Dict[str, Dict[str, float]]:
    """The scores by name, with the ends of their intervals where corpora were drawn."""
    if not samples:
        return {name: {"score": each.score} for name, each in estimates.items()}
    return {name: each._asdict() for name, each in estimates.items()}
