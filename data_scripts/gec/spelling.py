"""Misspelt words: slips of one or two letters, in the proportions that learners make them.

Each slip is a small function. It gets the letters, a position in them and random draws, and returns
the letters with the slip, or ``None`` where it does not fit. The weights are the shares of such
slips in the misspelt words of JFLEG's development set, even lines, counted from 0
(``count_edits.py`` prints them).
"""

from bisect import bisect
from itertools import accumulate
from typing import Callable, Dict, Optional, Tuple

from draws import Draws
from language import Language

Slip = Callable[[str, int, Draws, Language], Optional[str]]

#: The shares of misspelt words with one slip, two, and three.
SLIPS_A_WORD = (0.76, 0.17, 0.07)
#: Places that are tried for a slip before it is given up.
PLACES_TRIED = 4
#: The share of slips that may fall on the first letter; people rarely err there.
FIRST_LETTER = 0.25


def _put(word: str, position: int, width: int, new: str) -> str:
    return word[:position] + new + word[position + width :]


def vowel_replaced(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """A vowel written for another: exemple."""
    if word[position] not in language.heard:
        return None
    return _put(word, position, 1, draws.pick(language.vowels.replace(word[position], "")))


def vowel_dropped(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """A vowel that is hardly heard left out: intrested."""
    return _put(word, position, 1, "") if word[position] in language.heard else None


def vowel_added(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """A vowel too many: possiable."""
    return _put(word, position, 0, draws.pick(language.vowels))


def consonant_dropped(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """A consonant left out: goverment."""
    return None if word[position] in language.heard else _put(word, position, 1, "")


def letter_added(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """The key beside one pressed too, or a letter of the word once more: inflaction."""
    beside = language.keyboard.get(word[position], "")
    return _put(word, position, 0, draws.pick(beside if beside and draws.chance(0.5) else word))


def made_single(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """One of two equal letters left out: occuring."""
    return (
        _put(word, position, 1, "") if word[position] == word[position + 1 : position + 2] else None
    )


def made_double(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """A single consonant doubled: untill."""
    if word[position] in language.heard or word[position] in word[position + 1 : position + 2]:
        return None
    return _put(word, position, 0, word[position])


def swapped(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """Two letters in the other order: becuase."""
    pair = word[position : position + 2]
    return _put(word, position, 2, pair[::-1]) if len({*pair}) == 2 else None


def beside(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """The key beside the right one: becayse."""
    keys = language.keyboard.get(word[position])
    return _put(word, position, 1, draws.pick(keys)) if keys else None


def as_it_sounds(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """Letters that are written for others because they sound alike: sosiety."""
    fitting = [(old, new) for old, new in language.misspellings if old in word]
    if not fitting:
        return None
    old, new = draws.pick(fitting)
    found = word.find(old, position)
    return _put(word, found if found >= 0 else word.find(old), len(old), new)


def silent_letter(word: str, position: int, draws: Draws, language: Language) -> Optional[str]:
    """A silent letter at the end left out or put on: creat, prefere."""
    if word.endswith(language.silent):
        return word[:-1]
    return None if word[-1] in language.heard else word + language.silent


#: Every slip with its share.
SLIPS: Dict[str, Tuple[Slip, float]] = {
    "vowel replaced": (vowel_replaced, 0.14),
    "vowel dropped": (vowel_dropped, 0.14),
    "vowel added": (vowel_added, 0.06),
    "consonant dropped": (consonant_dropped, 0.12),
    "letter added": (letter_added, 0.07),
    "made single": (made_single, 0.07),
    "made double": (made_double, 0.06),
    "swapped": (swapped, 0.09),
    "beside": (beside, 0.08),
    "as it sounds": (as_it_sounds, 0.14),
    "silent letter": (silent_letter, 0.03),
}
_FUNCTIONS = [slip for slip, _ in SLIPS.values()]
_WEIGHTS = list(accumulate(weight for _, weight in SLIPS.values()))


def _one_slip(word: str, draws: Draws, language: Language) -> str:
    """The word with one slip more, or as it is where none of those drawn fits."""
    slip = _FUNCTIONS[bisect(_WEIGHTS, draws.uniform() * _WEIGHTS[-1], hi=len(_WEIGHTS) - 1)]
    for _ in range(PLACES_TRIED):
        position = draws.below(len(word))
        if position == 0 and not draws.chance(FIRST_LETTER):
            continue
        changed = slip(word, position, draws, language)
        if changed:
            return changed
    return word


def misspelt(word: str, draws: Draws, language: Language) -> str:
    """A word of lower-case letters with one to three slips; sometimes unchanged.

    Args:
        word: at least one letter.
        draws: random choices; equal ones give equal results.
        language: of the word.
    """
    drawn = draws.uniform()
    for share in SLIPS_A_WORD:
        word = _one_slip(word, draws, language)
        drawn -= share
        if drawn < 0:
            break
    return word
