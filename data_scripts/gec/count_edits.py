"""Which errors a corpus of corrections has: its edits counted by kind, to fit made errors to."""

import argparse
from collections import Counter
from typing import Counter as CounterOf
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

from confusion import read_vocabulary, stem
from english import (
    AGREEMENT,
    ARTICLES,
    FUNCTION_WORDS,
    PREPOSITIONS,
    noun_forms,
    verb_forms,
)
from linestreams import read_lines
from parallel_to_m2 import find_edits
from textfiles import check_parallel

from specdec_plugin.lab.gec.maxmatch import levenshtein

DESCRIPTION = """\
Count the edits between tokenised sentences and their corrections, by kind: how many there
are in 100 words. M: is a token that is missing, U: one too many. Real learners' errors and made
ones are compared with it, and --mix of make_errors.py is set by it."""

EXAMPLE = """\
example:
  python data_scripts/gec/count_edits.py dev.src dev.ref0 dev.ref1 --vocabulary words.txt \\
      --lines even"""

#: Which lines are read, counted from 0.
LINES = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}
#: Words with fewer edits a letter are one word, misspelt or inflected.
ALIKE = 0.5

Tokens = Sequence[str]


def get_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="count_edits.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("source", metavar="SOURCE", help="sentences with errors")
    parser.add_argument("references", metavar="CORRECTION", nargs="+", help="line-aligned")
    parser.add_argument(
        "--vocabulary", required=True, metavar="FILE", help="of make_errors.py: known words"
    )
    parser.add_argument(
        "--lines", choices=LINES, default="all", help="counted from 0 (default all)"
    )
    return parser


def are_alike(first: str, second: str) -> bool:
    """Whether few letters differ."""
    return levenshtein(first, second, 1)[-1][-1] < ALIKE * max(len(first), len(second))


def kind_of_word(old: str, new: str, known: Dict[str, int]) -> str:
    """The kind of an edit that replaces one lower-case word by another."""
    if not (old.isalpha() and new.isalpha()):
        return "punctuation" if not any(map(str.isalnum, old + new)) else "mixed"
    if old not in known and are_alike(old, new):
        return "misspelling"
    if old in ARTICLES and new in ARTICLES:
        return "article"
    if new in AGREEMENT.get(old, ()):
        return "agreement"
    if new in noun_forms(old, known) or old in noun_forms(new, known):
        return "number"
    if new in verb_forms(old, known):
        return "verb"
    if old in PREPOSITIONS and new in PREPOSITIONS:
        return "preposition"
    if old in FUNCTION_WORDS and new in FUNCTION_WORDS:
        return "small word"
    if stem(old) == stem(new):
        return "derivation"
    return "real word alike" if are_alike(old, new) else "other word"


def kind_of_token(token: str) -> str:
    """The kind of an edit that inserts or deletes one lower-case token."""
    if token in ARTICLES:
        return "article"
    if token in PREPOSITIONS:
        return "preposition"
    if token in FUNCTION_WORDS:
        return "small word"
    if any(map(str.isalnum, token)):
        return "other word"
    return "comma" if token == "," else "punctuation"


def kind(old: Tokens, new: Tokens, known: Dict[str, int]) -> str:
    """The kind of an edit.

    >>> kind(["file"], ["files"], {"file": 1, "files": 1}), kind([], ["the"], {})
    ('number', 'M: article')
    >>> kind(["in", "side"], ["inside"], {}), kind(["he"], ["He"], {})
    ('spacing', 'case')
    """
    old, new = [token.lower() for token in old], [token.lower() for token in new]
    if old == new:
        return "case"
    if "".join(old) == "".join(new):
        return "spacing"
    if sorted(old) == sorted(new):
        return "order"
    if len(old) == len(new) == 1:
        return kind_of_word(old[0], new[0], known)
    if len(old) + len(new) == 1:
        return ("M: " if new else "U: ") + kind_of_token((new or old)[0])
    return "several words"


def edits(source: Tokens, reference: Tokens) -> Iterator[Tuple[Tokens, Tokens]]:
    """What is replaced by what; as many words for as many are edits of single ones."""
    for edit in find_edits(source, reference):
        old, new = source[edit.start : edit.end], edit.replacement.split()
        if len(old) == len(new) and sorted(old) != sorted(new):
            yield from (([before], [after]) for before, after in zip(old, new))
        else:
            yield old, new


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args = get_parser().parse_args(argv)
    known = read_vocabulary(args.vocabulary)
    chosen = LINES[args.lines]
    lines = [line.split() for line in read_lines(args.source)]
    sources = lines[chosen]
    counts: CounterOf[str] = Counter()
    unchanged = 0
    for path in args.references:
        references = [line.split() for line in read_lines(path)]
        check_parallel(path, args.source, len(references), len(lines))
        for source, reference in zip(sources, references[chosen]):
            unchanged += source == reference
            counts.update(kind(old, new, known) for old, new in edits(source, reference))
    words = max(1, sum(map(len, sources)) * len(args.references))
    share = unchanged / max(1, len(sources) * len(args.references))
    print(
        f"{words:,} words, {100 * counts.total() / words:.2f} edits in 100, {share:.1%} unchanged"
    )
    for name, count in counts.most_common():
        print(f"{name:18} {100 * count / words:6.2f}")


if __name__ == "__main__":
    main()
