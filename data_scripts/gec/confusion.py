"""The vocabulary of a corpus, and which of its words are easily taken for one another."""

import re
from collections import Counter, defaultdict
from itertools import combinations
from typing import Counter as CounterOf
from typing import Dict, Iterable, List, NamedTuple, Set, Tuple

from english import ENGLISH
from language import Language
from linestreams import atomic_writer, read_lines

from specdec_plugin.errors import PluginError

#: Punctuation, a word of letters, punctuation. Letters may be joined by ' and -.
#: What does not match (markup, code, numbers, paths) is left alone.
WORD = re.compile(
    r"""([("'\[“‘«]*)"""
    r"""([^\W\d_]+(?:['’-][^\W\d_]+)*)"""
    r"""([)\]"'”’».,;:!?…]*)"""
)

#: Counting forgets words seen once when it knows so many, so that memory is bounded.
MOST_COUNTED = 2_000_000
#: The most words in a confusion set.
MOST_CONFUSED = 20


def is_plain(core: str) -> bool:
    """Whether a word is written as ordinary ones: no capital after the first letter.

    >>> is_plain("file"), is_plain("File"), is_plain("HTTP"), is_plain("TypeError")
    (True, True, False, False)
    """
    return core[1:] == core[1:].lower()


class Lexicon(NamedTuple):
    """What the errors are made from."""

    #: Lower-case words and how often they occur, the most frequent first.
    counts: Dict[str, int]
    #: Words that are within one edit, or sound alike.
    confusions: Dict[str, Tuple[str, ...]]
    #: Words of the same stem with other endings.
    families: Dict[str, Tuple[str, ...]]
    language: Language


def make_lexicon(counts: Dict[str, int], language: Language = ENGLISH) -> Lexicon:
    """The lexicon of a vocabulary."""
    sets = confusion_sets(counts, language)
    return Lexicon(counts, sets, families(counts, language), language)


# --- vocabulary -------------------------------------------------------------------------


def count_words(lines: Iterable[str], min_count: int, size: int) -> Dict[str, int]:
    """The ``size`` most frequent words that occur ``min_count`` times, in lower case.

    Words of equal count are sorted, so that the order of the lines does not matter as long as the
    corpus has no more than :data:`MOST_COUNTED` different words.
    """
    counts: CounterOf[str] = Counter()
    for line in lines:
        for word in line.split():
            match = WORD.fullmatch(word)
            if match and is_plain(match[2]):
                counts[match[2].lower()] += 1
        if len(counts) > MOST_COUNTED:
            counts = Counter({word: count for word, count in counts.items() if count > 1})
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    return dict(sorted(kept, key=lambda item: (-item[1], item[0]))[:size])


def write_vocabulary(path: str, counts: Dict[str, int]) -> None:
    """One ``word count`` a line."""
    with atomic_writer(path) as handle:
        handle.writelines(f"{word} {count}\n" for word, count in counts.items())


def read_vocabulary(path: str) -> Dict[str, int]:
    """What :func:`write_vocabulary` wrote."""
    counts: Dict[str, int] = {}
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.partition(" ")
        if not word or not count.isdecimal():
            raise PluginError(
                f"Line {number} of {path} is not 'WORD COUNT'. "
                "Give a file that --vocabulary wrote, or the name of a new one."
            )
        counts[word] = int(count)
    return counts


# --- confusion sets ---------------------------------------------------------------------


def confusion_sets(
    counts: Dict[str, int], language: Language = ENGLISH
) -> Dict[str, Tuple[str, ...]]:
    """For each word the words within one edit of it and those that sound alike.

    The most frequent are kept where there are many: people write words that they know.
    """
    words = [word for word in counts if len(word) > 1]
    found: Dict[str, Set[str]] = defaultdict(set)
    for neighbours in (one_edit_apart(words), sounding_alike(words, language)):
        for word, others in neighbours.items():
            found[word] |= others
    return {
        word: tuple(sorted(others, key=lambda other: (-counts[other], other))[:MOST_CONFUSED])
        for word, others in found.items()
    }


def families(counts: Dict[str, int], language: Language = ENGLISH) -> Dict[str, Tuple[str, ...]]:
    """For each word of a :func:`stem` the others of that stem, the most frequent first."""
    stems: Dict[str, List[str]] = defaultdict(list)
    for word in counts:
        stems[stem(word, language)].append(word)
    return {
        word: tuple(other for other in family if other != word)[:MOST_CONFUSED]
        for family in stems.values()
        for word in family
        if len(family) > 1
    }


def stem(word: str, language: Language = ENGLISH) -> str:
    """The word without endings, and without a last vowel that is loose.

    >>> [stem(word) for word in ("different", "difference", "differently", "beauty", "beautiful")]
    ['diff', 'diff', 'diff', 'beaut', 'beaut']
    """
    shortest = language.shortest_stem
    for end in language.endings:
        if word.endswith(end) and len(word) - len(end) >= shortest:
            return stem(word[: -len(end)], language)
    is_loose = word[-1:] in tuple(language.loose) and len(word) > shortest
    return word[:-1] if is_loose else word


def one_edit_apart(words: Iterable[str]) -> Dict[str, Set[str]]:
    """Pairs that differ by a letter put in, left out or replaced, or by two that are swapped.

    Deletion neighbourhoods, as in SymSpell: instead of comparing every two words, each is
    filed under itself and under all that is left when one letter is taken out. Words one
    edit apart then meet under some entry: those that meet by replacing a letter have lost
    it at the same position, and those by swapping two at positions next to each other.
    """
    files: Dict[str, List[Tuple[str, int]]] = defaultdict(list)
    for word in words:
        files[word].append((word, -1))
        for position in range(len(word)):
            files[word[:position] + word[position + 1 :]].append((word, position))
    pairs: Dict[str, Set[str]] = defaultdict(set)
    for filed in files.values():
        for (first, here), (second, there) in combinations(filed, 2):
            if first != second and _is_one_edit(first, here, second, there):
                pairs[first].add(second)
                pairs[second].add(first)
    return pairs


def _is_one_edit(first: str, here: int, second: str, there: int) -> bool:
    """Whether two words that are equal without these letters are one edit apart."""
    if here < 0 or there < 0 or here == there:  # -1: nothing was taken out
        return True
    low = min(here, there)
    swapped = first[low : low + 2] == second[low : low + 2][::-1]
    return abs(here - there) == 1 and swapped


def sounding_alike(words: Iterable[str], language: Language = ENGLISH) -> Dict[str, Set[str]]:
    """Words of one :func:`phonetic_key` whose lengths differ by two at most."""
    keyed: Dict[str, List[str]] = defaultdict(list)
    for word in words:
        keyed[phonetic_key(word, language)].append(word)
    return {
        word: {other for other in alike if other != word and abs(len(other) - len(word)) <= 2}
        for alike in keyed.values()
        for word in alike
        if len(alike) > 1
    }


def phonetic_key(word: str, language: Language = ENGLISH) -> str:
    """What a word sounds like, roughly; words of one key are easily confused.

    >>> [phonetic_key(word) for word in ("their", "there", "knight", "except")]
    ['0Ar', '0Ar', 'nAt', 'eksApt']
    """
    key = word.lower()
    for pattern, sound in language.sounds:
        key = re.sub(pattern, sound, key)
    return key
