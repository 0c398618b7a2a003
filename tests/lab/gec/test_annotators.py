"""Corpus scores with several annotators: who is chosen, sentence by sentence."""

from typing import Any, List, Tuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.lab.gec.annotators import Counts, EditCounts
from specdec_plugin.lab.gec.m2 import read_m2
from specdec_plugin.lab.gec.maxmatch import count_sentence

ANNOTATED = """\
S my sister live at city .
A 3 4|||Prep|||in|||REQUIRED|||-NONE-|||0
A 4 4|||ArtOrDet|||the||a|||REQUIRED|||-NONE-|||0

S these house .
A 1 2|||NN|||houses|||REQUIRED|||-NONE-|||0

S big cats is a fast runner .
A 2 3|||SVA|||are|||REQUIRED|||-NONE-|||0
A 3 4|||ArtOrDet||||||REQUIRED|||-NONE-|||0
A 5 6|||NN|||runners|||REQUIRED|||-NONE-|||0
A 1 2|||NN|||cat|||REQUIRED|||-NONE-|||1
"""


def in_order(rows: List[Any]) -> np.ndarray:
    return np.arange(len(rows))[None]


def scores(rows: List[List[Counts]], beta: float = 0.5) -> List[float]:
    found = EditCounts.of(rows, beta).scores(in_order(rows))
    assert list(found) == ["precision", "recall", f"F{beta:g}"]
    return [float(score) for (score,) in found.values()]


def test_a_corpus_by_hand() -> None:
    """Edits by sentence: 2 of 3 right and 2 to find; 0 of 0, and 1; 2 of 2, and 3."""
    hypotheses = ["our sister live in the city .", "these house .", "big cats are fast runner ."]
    annotated = list(read_m2(ANNOTATED.split("\n"), "some.m2"))
    rows = [
        count_sentence(source, hypothesis.split(), annotations)
        for (source, annotations), hypothesis in zip(annotated, hypotheses, strict=True)
    ]
    assert rows == [[(2, 3, 2)], [(0, 0, 1)], [(2, 2, 3), (0, 1, 1)]]
    precision, recall = 4 / 5, 4 / 6
    f_half = 1.25 * precision * recall / (0.25 * precision + recall)
    assert scores(rows) == pytest.approx([80, 100 * 2 / 3, 100 * f_half])
    assert f_half == pytest.approx(0.7692, abs=5e-5)
    assert scores(rows, beta=1)[2] == pytest.approx(100 * 8 / 11)


@pytest.mark.parametrize(
    "rows, expected",
    [
        ([[(0, 0, 2)]], [100, 0, 0]),  # nothing proposed
        ([[(0, 0, 0)]], [100, 100, 100]),  # and nothing to find
        ([[(0, 3, 0)]], [0, 100, 0]),
        ([[(0, 3, 2)]], [0, 0, 0]),
        ([[(1, 1, 1), (0, 1, 0)]], [100, 100, 100]),
        # Equal F (0): the fewer proposed and a quarter of those to find, the better.
        ([[(0, 1, 5), (0, 1, 1)], [(1, 1, 1)]], [50, 50, 50]),
        # Two annotators, of whom the first suits the sentence, and the second the corpus where
        # nine edits have been missed before: 6 of 10 and 17 has a better F than 1 of 1 and 10.
        ([[(0, 0, 9)], [(1, 1, 1), (6, 10, 8)]], [60, 600 / 17, 1.25 * 600 / 14.25]),
        ([[(1, 1, 1), (6, 10, 8)], [(0, 0, 9)]], [100, 10, 100 * 1.25 / 3.5]),
    ],
)
def test_small_corpora_by_hand(rows: List[List[Counts]], expected: List[float]) -> None:
    assert scores(rows) == pytest.approx(expected)


def one_after_the_other(rows: List[List[Counts]], sample: List[int]) -> List[int]:
    """The choice as it is written in the shared task's description, with its tie-breaking."""
    total = [0, 0, 0]
    for sentence in sample:
        ranked = []
        for place, counts in enumerate(rows[sentence]):
            matched, proposed, gold = (a + b for a, b in zip(total, counts, strict=True))
            size = proposed + 0.25 * gold
            f_score = 1.25 * matched / size if size else 1.0
            ranked.append((f_score, matched, -size, -place))
        total = [a + b for a, b in zip(total, rows[sentence][-max(ranked)[3]], strict=True)]
    return total


@st.composite
def corpora(draw: Any) -> Tuple[List[List[Counts]], List[List[int]]]:
    small = st.integers(0, 3)
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        row = []
        for _ in range(draw(st.integers(1, 3))):
            matched = draw(small)
            row.append((matched, matched + draw(small), matched + draw(small)))
        rows.append(row)
    sentence = st.integers(0, len(rows) - 1)
    sample = st.lists(sentence, min_size=len(rows), max_size=len(rows))
    return rows, draw(st.lists(sample, min_size=1, max_size=4))


@given(corpora())
def test_all_samples_at_once_are_each_by_itself(
    case: Tuple[List[List[Counts]], List[List[int]]],
) -> None:
    rows, samples = case
    found = EditCounts.of(rows).totals(np.array(samples))
    assert found.tolist() == [one_after_the_other(rows, sample) for sample in samples]
