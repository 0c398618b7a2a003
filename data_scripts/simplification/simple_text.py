"""Text of simplification corpora in one form: tokenised, in lower case, with plain brackets."""

import os
import sys

# The programs of these folders share their modules with those of this one.
sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.append(os.path.join(sys.path[-1], "gec"))
from textfiles import clean
from tokenise import tokens

_BRACKETS = {"-lrb-": "(", "-rrb-": ")", "-lsb-": "[", "-rsb-": "]", "``": '"', "''": '"'}


def normalised(line: str) -> str:
    """A sentence as every corpus has it here.

    >>> normalised("Napa (to the east)."), normalised("napa -lrb- to the east -rrb- .")
    ('napa ( to the east ) .', 'napa ( to the east ) .')
    """
    words = [_BRACKETS.get(word, word) for word in clean(line).lower().split()]
    return " ".join(tokens(" ".join(words)))


def letters(line: str) -> str:
    """The letters and figures of a normalised sentence, by which it is found in other corpora."""
    return "".join(filter(str.isalnum, line))
