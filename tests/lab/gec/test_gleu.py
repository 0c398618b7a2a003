"""GLEU: by hand, and against a second implementation that counts one n-gram at a time."""

import math
from typing import List

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.lab.gec.gleu import Gleu, reference_draws


def score(source: str, hypothesis: str, *references: str) -> float:
    texts = [[text.split()] for text in (source, hypothesis, *references)]
    return float(Gleu.of(texts[0], texts[1], texts[2:]).scores(np.array([[0]]))["GLEU"][0])


def test_by_hand() -> None:
    # The reference changes the last of six tokens, and the hypothesis leaves it: of 6, 5, 4 and
    # 3 n-grams 5, 4, 3 and 2 are right, and in each order one keeps what should have changed.
    unchanged = 100 * (4 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert score("a b c d e f", "a b c d e f", "a b c d e g") == pytest.approx(unchanged)
    # Another wrong token costs less than the one that should have changed: no penalty.
    wrong = 100 * (5 / 6 * 4 / 5 * 3 / 4 * 2 / 3) ** 0.25
    assert score("a b c d e f", "a b c d e x", "a b c d e g") == pytest.approx(wrong)
    assert score("a b c d e f", "a b c d e g", "a b c d e g") == pytest.approx(100)
    # Five tokens where the reference has six.
    assert score("a b c d e", "a b c d e", "a b c d e f") == pytest.approx(100 * math.exp(-0.2))
    # The reference has one e less, but it has one: no penalty for that, only for "e e", "d e e" …
    twice = 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25
    assert score("a b c d e e", "a b c d e e", "a b c d e") == pytest.approx(twice)


def test_nothing_in_common_is_zero() -> None:
    assert score("a b c d", "a b c d", "w x y z") == 0
    assert score("a b c", "a b c", "a b c") == 0  # no 4-gram, and no smoothing
    assert score("a b c d", "", "a b c d") == 0
    assert score("a b c d", "a b c d", "") == 0


def naive(sources: List[str], hypotheses: List[str], references: List[str]) -> float:
    logs = 0.0
    for n in (1, 2, 3, 4):
        right = total = 0
        for source, hypothesis, reference in zip(sources, hypotheses, references, strict=True):
            in_source, ours, wanted = (
                [text[k : k + n] for k in range(len(text) - n + 1)]
                for text in (source, hypothesis, reference)
            )
            matches = sum(min(ours.count(g), wanted.count(g)) for g in set(ours))
            matches -= sum(
                min(ours.count(g), in_source.count(g)) for g in set(ours) if g not in wanted
            )
            right += max(matches, 0)
            total += len(ours)
        if not right:
            return 0.0
        logs += math.log(right / total) / 4
    ours_long, wanted_long = len("".join(hypotheses)), len("".join(references))
    return math.exp(logs + min(0.0, 1 - wanted_long / ours_long)) if wanted_long else 0.0


TEXT = st.text("ab", max_size=9)
CORPUS = st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT), min_size=1, max_size=5)


@given(CORPUS, st.data())
def test_equals_a_naive_implementation(corpus: List[List[str]], data: st.DataObject) -> None:
    sources, hypotheses, *references = (list(texts) for texts in zip(*corpus, strict=True))
    gleu = Gleu.of(sources, hypotheses, references, iterations=7)
    assert gleu.draws.shape == (7, len(sources))
    number = st.integers(0, len(sources) - 1)
    sample = data.draw(st.lists(number, min_size=len(sources), max_size=len(sources)))
    for chosen in (list(range(len(sources))), sample):
        each = [
            naive(
                [sources[i] for i in chosen],
                [hypotheses[i] for i in chosen],
                [references[draw[i]][i] for i in chosen],
            )
            for draw in gleu.draws
        ]
        found = gleu.scores(np.array([chosen]))["GLEU"]
        assert found == pytest.approx([100 * sum(each) / 7])


def test_draws_are_even_and_the_same_each_time() -> None:
    draws = reference_draws(500, 40, 4)
    assert draws.shape == (500, 40)
    assert np.bincount(draws.ravel()) / draws.size == pytest.approx([0.25] * 4, abs=0.01)
    assert (draws == reference_draws(500, 40, 4)).all()
    assert (draws[:7] == reference_draws(7, 40, 4)).all()
    assert len({tuple(draw) for draw in draws}) == 500
    # Draw 1 is random.seed(101), then random.random() for each sentence: 0.58, 0.19, 0.97
    assert draws[1, :3].tolist() == [2, 0, 3]


def test_one_reference_needs_no_draws() -> None:
    texts = [["a b c d e".split()] * 40] * 3
    assert Gleu.of(texts[0], texts[1], texts[:1]).draws.tolist() == [[0] * 40]
