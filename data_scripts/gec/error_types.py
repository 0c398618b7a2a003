"""The kinds of errors: one small function each, which makes one at a given word or does not.

Such a function gets the sentence, the index of a word, random draws and the lexicon. It
returns a :data:`Change`, or ``None`` where its error does not fit. It looks at the words
as they were: the caller sees to it that no word is changed twice. An insertion that would
fit nearly anywhere declines most positions, so that it does not crowd out the others.
"""

from typing import Callable, Dict, List, Optional, Sequence, Tuple

from confusion import WORD, Lexicon, is_plain
from draws import Draws
from english import (
    AGREEMENT,
    ARTICLES,
    DETERMINERS,
    FUNCTION_WORDS,
    noun_forms,
    regular_endings,
    verb_forms,
)
from spelling import misspelt

#: So many words, from the given one on, are replaced by these.
Change = Tuple[int, List[str]]

#: The share of positions at which an insertion is made that would fit nearly everywhere.
RARELY = 0.06
#: Letters of a word that is misspelt wherever that is drawn; of shorter ones fewer are.
LONG = 9
#: The share of content words that are dropped where they are drawn; function words all are.
CONTENT_WORDS = 0.2


class Sentence:
    """The words of a line, and those of letters apart from the punctuation around them."""

    __slots__ = ("after", "before", "cores", "lower", "spaced", "words")

    def __init__(self, line: str) -> None:
        self.words = line.split()
        self.before, self.cores, self.after = [], [], []
        for word in self.words:
            match = WORD.fullmatch(word)
            plain = match and is_plain(match[2])
            before, core, after = match.groups() if match and plain else ("", "", "")
            self.before.append(before)
            self.cores.append(core)
            self.after.append(after)
        #: Empty for what is no plain word: markup, numbers, punctuation on its own.
        self.lower = [core.lower() for core in self.cores]
        #: Whether punctuation stands alone, as in tokenised text.
        self.spaced = any(word in PUNCTUATION for word in self.words)

    def __len__(self) -> int:
        return len(self.words)

    def put(self, index: int, core: str) -> str:
        """The word at ``index`` with other letters: its punctuation, and its capital."""
        if self.cores[index][:1].isupper():
            core = core[:1].upper() + core[1:]
        return self.before[index] + core + self.after[index]

    def joined_to_next(self, index: int) -> bool:
        """Whether a plain word and, with nothing in between, another follow here."""
        return (
            index + 1 < len(self.words)
            and bool(self.cores[index] and self.cores[index + 1])
            and not self.after[index]
            and not self.before[index + 1]
        )


ErrorType = Callable[[Sentence, int, Draws, Lexicon], Optional[Change]]

#: Marks that are dropped, or replaced by one of these.
PUNCTUATION = {",": ".;", ".": ",!", ";": ",:", ":": ";,", "?": ".!", "!": "."}


def _replaced(
    sentence: Sentence, index: int, draws: Draws, others: Optional[Sequence[str]]
) -> Optional[Change]:
    """The word replaced by one of the others, if there are any."""
    return (1, [sentence.put(index, draws.pick(others))]) if others else None


# --- spelling ---------------------------------------------------------------------------


def spelling(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A known word for one that is an edit away or sounds alike."""
    return _replaced(sentence, index, draws, lexicon.confusions.get(sentence.lower[index]))


def _spelt(sentence: Sentence, index: int, lexicon: Lexicon) -> str:
    """The word if learners may misspell it: a known one, and no name; else the empty word.

    Errors in unknown words would teach to change whatever is unknown.
    """
    word = sentence.lower[index]
    is_name = index > 0 and not sentence.cores[index].islower()
    return word if word in lexicon.counts and word.isalpha() and not is_name else ""


def misspelling(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """Letters left out, put in, swapped or written as they sound; no known word results."""
    word = _spelt(sentence, index, lexicon)
    if len(word) < 3 or not draws.chance((len(word) - 1) / (LONG - 1)):
        return None
    wrong = misspelt(word, draws, lexicon.language)
    return None if wrong in lexicon.counts else _replaced(sentence, index, draws, (wrong,))


def typo(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A slip of the fingers: letters swapped, left out, doubled, or the key beside."""
    word = _spelt(sentence, index, lexicon)
    if len(word) < 3:
        return None
    position = draws.below(len(word) - 1)
    keys = lexicon.language.keyboard
    here, beside = word[position], draws.pick(keys.get(word[position], word[position]))
    slips = (
        word[position + 1] + here,  # swapped with the next
        word[position + 1],  # left out
        here + here + word[position + 1],  # typed twice
        beside + word[position + 1],  # the key beside it
        here + beside + word[position + 1],  # and both keys
    )
    return 1, [sentence.put(index, word[:position] + draws.pick(slips) + word[position + 2 :])]


def _is_half(word: str, lexicon: Lexicon) -> bool:
    """Whether a part of a word passes for a word; of two letters, few do."""
    return word in lexicon.counts and (len(word) > 2 or word in lexicon.language.function_words)


def spacing(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """Two words written as one, or one as two."""
    word = sentence.cores[index]
    cuts = [
        position
        for position in range(2, len(word) - 1)
        if all(_is_half(half, lexicon) for half in (word[:position].lower(), word[position:]))
    ]
    if cuts:
        position = draws.pick(cuts)
        before, after = sentence.before[index], sentence.after[index]
        return 1, [before + word[:position], word[position:] + after]
    if sentence.joined_to_next(index) and draws.chance(RARELY):
        return 2, [sentence.words[index] + sentence.words[index + 1]]
    return None


def real_word(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A word for another of a list: their, there, they're."""
    return _replaced(sentence, index, draws, lexicon.language.real_words.get(sentence.lower[index]))


# --- grammar ----------------------------------------------------------------------------


def article(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """An article dropped, put in, or replaced by another."""
    word = sentence.lower[index]
    if word in ARTICLES:
        if draws.chance(0.8):
            return _dropped(sentence, index)
        return _replaced(sentence, index, draws, [other for other in ARTICLES if other != word])
    if not sentence.cores[index].islower() or word in FUNCTION_WORDS or sentence.before[index]:
        return None
    if index and (
        sentence.lower[index - 1] in ARTICLES or sentence.lower[index - 1] in DETERMINERS
    ):
        return None
    if not draws.chance(RARELY):
        return None
    new = "the" if draws.chance(0.6) else "an" if word[0] in "aeiou" else "a"
    return 1, [new, sentence.words[index]]


def preposition(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A preposition replaced by another, dropped, or put in."""
    others = lexicon.language.prepositions.get(sentence.lower[index])
    if others:
        if draws.chance(0.25):
            return _dropped(sentence, index)
        return _replaced(sentence, index, draws, others)
    if sentence.joined_to_next(index) and draws.chance(RARELY / 2):
        return 1, [sentence.words[index], draws.pick(lexicon.language.inserted_prepositions)]
    return None


def agreement(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """An auxiliary verb of another person or number: is for are, have for has."""
    return _replaced(sentence, index, draws, AGREEMENT.get(sentence.lower[index]))


def number(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """The -s of a noun or a verb put on or taken off: file and files, copy and copies."""
    word = sentence.lower[index]
    if len(word) < 3 or word in FUNCTION_WORDS:
        return None
    return _replaced(sentence, index, draws, noun_forms(word, lexicon.counts))


def verb(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """Another form of a verb: base, -ed, -ing, or the irregular one."""
    word = sentence.lower[index]
    if len(word) < 2:
        return None
    return _replaced(sentence, index, draws, verb_forms(word, lexicon.counts))


def ending(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A regular ending where the word takes none or another: choosed, familys, knowledges."""
    word = _spelt(sentence, index, lexicon)
    if len(word) < 4 or word in FUNCTION_WORDS:
        return None
    made = [form for form in regular_endings(word) if form not in lexicon.counts]
    return _replaced(sentence, index, draws, made)


def derivation(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A word of the same stem with another ending: different for difference."""
    return _replaced(sentence, index, draws, lexicon.families.get(sentence.lower[index]))


# --- writing ----------------------------------------------------------------------------


def case(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A capital for a small first letter, or the other way round."""
    core = sentence.cores[index]
    if not core:
        return None
    first = core[0].lower()
    if first == core[0]:
        first = core[0].upper()
        if len(first) != 1 or not draws.chance(RARELY):
            return None
    return 1, [sentence.before[index] + first + core[1:] + sentence.after[index]]


def comma(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A comma left out, or put in where none belongs."""
    word = sentence.words[index]
    if word.endswith(","):
        return 1, [word[:-1]] if word[:-1] else []
    fits = sentence.joined_to_next(index) and draws.chance(RARELY / 10)
    if not fits:
        return None
    return 1, [word, ","] if sentence.spaced else [word + ","]


def punctuation(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A comma, full stop or apostrophe dropped, put in, or replaced."""
    word = sentence.words[index]
    if word[-1] in PUNCTUATION:
        stem, mark = word[:-1], word[-1]
        if stem[-1:] in (".", ":"):  # an ellipsis, or markup
            return None
        if draws.chance(0.6):
            return 1, [stem] if stem else []
        return 1, [stem + draws.pick(PUNCTUATION[mark])]
    if not sentence.cores[index]:
        return None
    for apostrophe in "'’":
        if apostrophe in sentence.cores[index]:
            return 1, [sentence.put(index, sentence.cores[index].replace(apostrophe, ""))]
    if sentence.after[index] or not draws.chance(RARELY):
        return None
    if index + 1 == len(sentence):
        return None  # a comma at the end of a heading teaches nothing
    return 1, [word, ","] if sentence.spaced else [word + ","]


# --- words ------------------------------------------------------------------------------


def _dropped(sentence: Sentence, index: int) -> Optional[Change]:
    """The word left out; its capital goes to the next one, punctuation around it stays."""
    if sentence.before[index] or sentence.after[index]:
        return None
    if not sentence.cores[index][:1].isupper():
        return 1, []
    if not sentence.joined_to_next(index):
        return None
    following = sentence.words[index + 1]
    return 2, [following[:1].upper() + following[1:]]


def deletion(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A word left out, mostly a small one."""
    word = sentence.lower[index]
    if not word or not (word in lexicon.language.function_words or draws.chance(CONTENT_WORDS)):
        return None
    return _dropped(sentence, index)


def insertion(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A small word put in, or a word written twice."""
    word, lower = sentence.words[index], sentence.lower[index]
    if not lower or sentence.after[index] or sentence.before[index]:
        return None
    return 1, [word, lower if draws.chance(0.3) else draws.pick(lexicon.language.inserted_words)]


def swap(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A word and the next one in the other order."""
    if not sentence.joined_to_next(index):
        return None
    first, second = sentence.cores[index], sentence.cores[index + 1]
    if index == 0 and first[0].isupper() and second.islower():  # The file → File the
        first, second = first.lower(), second[0].upper() + second[1:]
    return 2, [sentence.before[index] + second, first + sentence.after[index + 1]]


def mark(sentence: Sentence, index: int, draws: Draws, lexicon: Lexicon) -> Optional[Change]:
    """A mark that stands alone written as another, or left out: - for —."""
    others = lexicon.language.marks.get(sentence.words[index])
    if not others:
        return None
    new = draws.pick(others)
    return 1, [new] if new else []


#: Every kind. How often a language makes it is in its ``mix``.
ERROR_TYPES: Dict[str, ErrorType] = {
    "spelling": spelling,
    "misspelling": misspelling,
    "typo": typo,
    "spacing": spacing,
    "real-word": real_word,
    "article": article,
    "preposition": preposition,
    "agreement": agreement,
    "number": number,
    "verb": verb,
    "ending": ending,
    "derivation": derivation,
    "case": case,
    "comma": comma,
    "punctuation": punctuation,
    "deletion": deletion,
    "insertion": insertion,
    "swap": swap,
    "mark": mark,
}
