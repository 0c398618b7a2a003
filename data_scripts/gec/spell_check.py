"""A plain spell checker, for comparison: the most frequent word one or two edits away."""

import argparse
import string
from typing import Dict, Iterator, Optional, Sequence

from confusion import WORD, is_plain, read_vocabulary
from linestreams import rewrite

DESCRIPTION = """\
Read tokenised text from standard input and write it with unknown words corrected: by the
most frequent known word that is one edit away, else two. It reads no context. Names (capitals
within a sentence), short words, and words that are not of letters alone stay."""

EXAMPLE = """\
example:
  python data_scripts/gec/spell_check.py --vocabulary words.txt < dev.src > dev.spelt"""

#: Letters that a word has at least to be corrected.
SHORTEST = 4


def one_edit_from(word: str) -> Iterator[str]:
    """All that is one edit away: a letter less, swapped with the next, another, or one more."""
    for position in range(len(word) + 1):
        before, after = word[:position], word[position:]
        if after:
            yield before + after[1:]
            yield before + after[1:2] + after[0] + after[2:]
        for letter in string.ascii_lowercase:
            yield before + letter + after
            if after:
                yield before + letter + after[1:]


class SpellChecker:
    """Corrects words that a vocabulary lacks.

    Args:
        counts: known words in lower case, with their frequency.
    """

    def __init__(self, counts: Dict[str, int]) -> None:
        self._counts = counts
        self._found: Dict[str, str] = {}

    def word(self, word: str) -> str:
        """The word in lower case, or a known one near it."""
        if word not in self._found:
            self._found[word] = self._nearest(word)
        return self._found[word]

    def _nearest(self, word: str) -> str:
        near = {*one_edit_from(word)}
        known = near & self._counts.keys()
        if not known:
            known = {two for one in near for two in one_edit_from(one) if two in self._counts}
        return max(known, key=lambda each: (self._counts[each], each), default=word)

    def line(self, line: str) -> str:
        """A tokenised sentence with its unknown words corrected."""
        return " ".join(self._token(*each) for each in enumerate(line.split()))

    def _token(self, index: int, token: str) -> str:
        match = WORD.fullmatch(token)
        core = match[2] if match else ""
        if len(core) < SHORTEST or not (core.isalpha() and is_plain(core)):
            return token
        lower = core.lower()
        if lower in self._counts or (index and core != lower):
            return token
        found = self.word(lower)
        return token.replace(core, found if core == lower else found.capitalize())


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="spell_check.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--vocabulary", required=True, metavar="FILE", help="known words, as make_errors.py writes"
    )
    args = parser.parse_args(argv)
    rewrite(SpellChecker(read_vocabulary(args.vocabulary)).line)


if __name__ == "__main__":
    main()
