"""Intervals: seeded, as wide as theory says, and of corpora that are scored as such."""

import random
from typing import Any, Dict, List

import numpy as np
import pytest

from specdec_plugin.lab.gec.annotators import EditCounts
from specdec_plugin.lab.gec.bootstrap import Estimate, estimate
from specdec_plugin.lab.gec.gleu import Gleu
from specdec_plugin.lab.gec.sari import Sari


class Mean:
    """A metric whose interval is known."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, dtype=float)

    def scores(self, samples: np.ndarray) -> Dict[str, np.ndarray]:
        return {"mean": self.values[samples].mean(1)}


def test_interval_of_a_mean() -> None:
    values = np.random.default_rng(7).normal(5, 2, 400)
    found = estimate(Mean(values), 400, samples=4000)["mean"]
    half = 1.96 * values.std() / 20
    expected = (values.mean(), values.mean() - half, values.mean() + half)
    assert found == pytest.approx(expected, abs=0.08 * half)
    narrow = estimate(Mean(values), 400, samples=4000, confidence=0.5)["mean"]
    assert narrow.high - narrow.low == pytest.approx(2 * half * 0.6745 / 1.96, rel=0.1)


def test_seeds_and_edges() -> None:
    metric = Mean(range(30))
    first = estimate(metric, 30, samples=250)
    assert first == estimate(metric, 30, samples=250)
    assert first != estimate(metric, 30, samples=250, seed=2)
    assert estimate(metric, 30, samples=0) == {"mean": Estimate(14.5, 14.5, 14.5)}
    assert estimate(Mean([3]), 1) == {"mean": Estimate(3, 3, 3)}


def built(name: str, rows: List[Any]) -> Any:
    if name == "m2":
        return EditCounts.of([row[3] for row in rows])
    sources, hypotheses, reference = ([row[place] for row in rows] for place in range(3))
    if name == "gleu":
        return Gleu.of(sources, hypotheses, [reference])
    return Sari.of(sources, hypotheses, [reference, sources], average=name)


@pytest.mark.parametrize("name", ["m2", "gleu", "corpus", "sentence"])
def test_a_sample_is_scored_as_a_corpus_of_its_own(name: str) -> None:
    generator = random.Random(3)

    def row() -> List[Any]:
        texts: List[Any] = [generator.choices("ab", k=generator.randint(0, 12)) for _ in range(3)]
        matched = generator.randint(0, 2)
        return [*texts, [(matched, matched + 1, 3), (0, 1, generator.randint(0, 1))]]

    rows = [row() for _ in range(12)]
    samples = np.random.default_rng(1).integers(12, size=(5, 12))
    together = built(name, rows).scores(samples)
    for number, sample in enumerate(samples):
        alone = built(name, [rows[place] for place in sample]).scores(np.arange(12)[None])
        assert {key: values[number] for key, values in together.items()} == pytest.approx(
            {key: value for key, (value,) in alone.items()}
        )
