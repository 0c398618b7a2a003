"""SARI: by hand, both averages."""

import itertools
from typing import Any, List

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from specdec_plugin.lab.gec.sari import Sari


def scores(sentences: List[List[str]], **options: Any) -> List[float]:
    """SARI, keep, delete, add of sentences given as source, hypothesis, references."""
    sources, hypotheses, *references = [
        [text.split() for text in texts] for texts in zip(*sentences, strict=True)
    ]
    sari = Sari.of(sources, hypotheses, references, **options)
    found = sari.scores(np.arange(len(sentences))[None])
    assert list(found) == ["SARI", "SARI keep", "SARI delete", "SARI add"]
    return [float(score) for (score,) in found.values()]


def percent(keep: float, delete: float, add: float) -> Any:
    return pytest.approx([100 * (keep + delete + add) / 3, 100 * keep, 100 * delete, 100 * add])


@pytest.mark.parametrize("average", ["corpus", "sentence"])
def test_one_sentence_by_hand(average: str) -> None:
    # Kept: a, c; deleted: b, ab, bc, abc; added: ac.  All of it right, but where there is
    # nothing to keep, delete or add, as for four tokens, there is no score to gain.
    assert scores([["a b c", "a c", "a c"]], average=average) == percent(1 / 4, 3 / 4, 1 / 4)
    # Nothing done.  Right to keep: 2 of 3, 0 of 2, 0 of 1; to be kept 2, 0, 0.
    kept = 2 * (2 / 3) / (2 / 3 + 1) / 4
    assert scores([["a b c", "a b c", "a c"]], average=average) == percent(kept, 0, 0)
    # Added x, bx, abx: x and bx are in the reference, which adds y, xy, bxy besides.
    added = (2 * 0.5 / 1.5 + 2 * 0.5 / 1.5 + 0 + 0) / 4
    assert scores([["a b", "a b x", "b x y"]], average=average)[3] == pytest.approx(100 * added)
    assert scores([["", "", ""]], average=average) == [0, 0, 0, 0]


def test_several_references_by_hand() -> None:
    """One reference of two deletes b, and so ab: either is half right."""
    sentence = [["a b", "a", "a", "a b"]]
    delete = (1 / 2 + 1 / 2) / 4
    # a counts 2, b counts 1 among what is to be kept: recall 2/3.
    assert scores(sentence) == percent(2 * (2 / 3) / (5 / 3) / 4, delete, 0)
    # By n-gram types: one of two.
    assert scores(sentence, average="sentence") == percent(2 * 0.5 / 1.5 / 4, delete, 0)
    # What was to be deleted was: recall 1.
    assert scores(sentence, deletion="f1")[2] == pytest.approx(100 * (2 / 3 + 2 / 3) / 4)


def test_a_repeated_ngram_counts_as_often() -> None:
    """Of a a b the reference keeps one a and b; the hypothesis keeps two a."""
    keep = 2 * (1 / 2) * (1 / 2) / (1 / 2 + 1 / 2)
    assert scores([["a a b", "a a", "a b"]])[1] == pytest.approx(100 * keep / 4)


def test_sentences_and_corpora() -> None:
    """The mean of sentences weighs each the same, the corpus each n-gram."""
    sentences = [["a b c", "a c", "a c"], ["a b", "x", "a b"]]
    mean = scores(sentences, average="sentence")
    each = [scores([sentence], average="sentence") for sentence in sentences]
    assert mean == pytest.approx([sum(pair) / 2 for pair in zip(*each, strict=True)])
    # The corpus: unigrams kept 2 of 2, and 4 to keep; bigrams to keep: 1.
    keep = 2 * (2 / 4) / (1 + 2 / 4) / 4
    # Deleted b (right), and a, b (wrong); ab, bc (right), and ab (wrong); abc (right).
    delete = (1 / 3 + 2 / 3 + 1) / 4
    # Added x, where nothing was to be added; ac (right).
    add = (0 + 1) / 4
    assert scores(sentences) == percent(keep, delete, add)


def naive_corpus(sentences: List[List[str]], order: int = 4) -> List[float]:
    """The corpus' scores with F1 for deletions, by EASSE's definition, one n-gram at a time."""
    parts = []
    for operation in ("keep", "delete", "add"):
        of_order = []
        for n in range(1, order + 1):
            right = did = wanted = 0.0
            for source, hypothesis, *references in sentences:
                grams = [
                    [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
                    for words in map(str.split, (source, hypothesis, *references))
                ]
                for gram in {*itertools.chain(*grams)}:
                    before, after, *each = [found.count(gram) for found in grams]
                    mean = sum(each) / len(each)
                    if operation == "keep":
                        done, asked = min(before, after), min(before, mean)
                    elif operation == "delete":
                        done, asked = max(before - after, 0), max(before - mean, 0)
                    else:
                        done, asked = float(after > 0 == before), float(mean > 0 == before)
                    weight = 1 if operation == "add" else len(each)
                    right += weight * min(done, asked)
                    did += weight * done
                    wanted += weight * asked
            of_order.append(2 * right / (did + wanted) if right else 0.0)
        parts.append(sum(of_order) / order)
    return [100 * score for score in (sum(parts) / 3, *parts)]


TEXT = st.lists(st.sampled_from("abcd"), max_size=7).map(" ".join)


@given(st.lists(st.lists(TEXT, min_size=4, max_size=4), min_size=1, max_size=4))
@example([["a a b c", "a b d", "a b b", "a a d"], ["a", "", "b", "c"]])
def test_made_cases_by_the_definition(sentences: List[List[str]]) -> None:
    expected = naive_corpus(sentences)
    assert scores(sentences, deletion="f1") == pytest.approx(expected)
