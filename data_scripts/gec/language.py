"""What the noise program has to know of a language; ``english.py`` and ``ukrainian.py`` know it."""

from typing import Dict, FrozenSet, Iterable, List, NamedTuple, Tuple

Others = Dict[str, Tuple[str, ...]]


class Language(NamedTuple):
    """Tables of a language. All words are in lower case."""

    #: Kinds of errors with their weights; those that the language does not have are not named.
    mix: Dict[str, float]
    #: Words that are taken for one another although each is spelt correctly.
    real_words: Others
    #: Each preposition with those that are often written for it.
    prepositions: Others
    #: Prepositions that are put in where none belongs.
    inserted_prepositions: Tuple[str, ...]
    #: Small words; the ones that are left out most easily.
    function_words: FrozenSet[str]
    #: Words that are put in where none belongs.
    inserted_words: Tuple[str, ...]
    #: The keys beside each key.
    keyboard: Dict[str, str]
    #: Spellings that are written for one another, wherever in a word.
    misspellings: Tuple[Tuple[str, str], ...]
    #: Letters that are written for a vowel, all alike.
    vowels: str
    #: Letters that are heard as vowels.
    heard: str
    #: A letter at the end that is not heard itself, left out or put on by mistake.
    silent: str
    #: Marks that stand alone, with what is written for them; empty where they are left out.
    marks: Others
    #: Endings that make words of others, the longest first.
    endings: Tuple[str, ...]
    #: Last letters that a stem loses.
    loose: str
    #: Letters that a stem has at least.
    shortest_stem: int
    #: Patterns of letters and what they sound like, applied in this order.
    sounds: Tuple[Tuple[str, str], ...]


def each_to_others(sets: Iterable[str]) -> Others:
    """``"a b c"`` → ``{"a": ("b", "c"), …}``; a word may stand in several sets."""
    others: Dict[str, List[str]] = {}
    for words in map(str.split, sets):
        for word in words:
            found = others.setdefault(word, [])
            found += [other for other in words if other != word and other not in found]
    return {word: tuple(found) for word, found in others.items()}


def by_length(endings: str) -> Tuple[str, ...]:
    """Endings, separated by spaces, the longest first."""
    return tuple(sorted(endings.split(), key=len, reverse=True))
