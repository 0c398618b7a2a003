"""Misspelt words: every slip does what it says, in the proportions of its table."""

from collections import Counter
from typing import Callable, List

import pytest
import spelling
from draws import Draws
from english import ENGLISH
from hypothesis import given
from hypothesis import strategies as st
from spelling import SLIPS, SLIPS_A_WORD, misspelt

WORDS = "because different society interested successful possible friends".split()


def draws(*key: int) -> Draws:
    """Random choices of this key."""
    chosen = Draws()
    chosen.restart(*key)
    return chosen


def slips(name: str, word: str) -> List[str]:
    """What a slip makes of a word at all its places, several times."""
    slip, _ = SLIPS[name]
    chosen = draws(1)
    made = [slip(word, place, chosen, ENGLISH) for _ in range(20) for place in range(len(word))]
    return [wrong for wrong in made if wrong is not None]


def same_letters(wrong: str, right: str) -> bool:
    return sorted(wrong) == sorted(right)


CHECKS: "dict[str, Callable[[str, str], bool]]" = {
    "vowel replaced": lambda wrong, right: len(wrong) == len(right),
    "vowel dropped": lambda wrong, right: len(wrong) == len(right) - 1,
    "vowel added": lambda wrong, right: len(wrong) == len(right) + 1,
    "consonant dropped": lambda wrong, right: len(wrong) == len(right) - 1,
    "letter added": lambda wrong, right: len(wrong) == len(right) + 1,
    "made single": lambda wrong, right: {*wrong} == {*right} and len(wrong) == len(right) - 1,
    "made double": lambda wrong, right: {*wrong} == {*right} and len(wrong) == len(right) + 1,
    "swapped": same_letters,
    "beside": lambda wrong, right: len(wrong) == len(right),
    "as it sounds": lambda wrong, right: abs(len(wrong) - len(right)) <= 2,
    "silent letter": lambda wrong, right: abs(len(wrong) - len(right)) == 1,
}


@pytest.mark.parametrize("name", SLIPS)
def test_each_slip_is_one(name: str) -> None:
    made = [(wrong, word) for word in WORDS for wrong in slips(name, word)]
    assert made
    assert all(wrong != right and CHECKS[name](wrong, right) for wrong, right in made)


@given(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12), st.integers(0, 10**6))
def test_any_word_and_the_same_draws(word: str, number: int) -> None:
    wrong = misspelt(word, draws(number), ENGLISH)
    assert wrong == misspelt(word, draws(number), ENGLISH)
    assert wrong.isalpha() or wrong == ""
    assert abs(len(wrong) - len(word)) <= 2 * len(SLIPS_A_WORD)


def test_most_words_have_one_slip_and_first_letters_stay() -> None:
    chosen = draws(3)
    made = [misspelt("interesting", chosen, ENGLISH) for _ in range(3000)]
    lengths = Counter(abs(len(wrong) - len("interesting")) for wrong in made)
    assert lengths[0] + lengths[1] > 0.85 * len(made)
    assert sum(wrong[:1] != "i" for wrong in made) < 0.1 * len(made)
    assert len({*made}) > 150


def test_shares_are_those_of_the_table() -> None:
    assert sum(SLIPS_A_WORD) == pytest.approx(1)
    assert sum(weight for _, weight in SLIPS.values()) == pytest.approx(1)
    shares = {name: weight for name, (_, weight) in SLIPS.items()}
    assert spelling.SLIPS.keys() == CHECKS.keys() == shares.keys()
