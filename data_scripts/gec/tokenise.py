"""Raw English text into the tokens of corpora of corrections: JFLEG's, CoNLL's."""

import argparse
import re
from typing import Iterator, Optional, Sequence

from linestreams import rewrite

DESCRIPTION = """\
Read text from standard input, a sentence a line, and write it with a space
between words, punctuation and clitics (do n't, it 's), as corpora of learners'
errors come. Words with other characters than letters, such as ``names`` of
programs, stay whole but for the punctuation around them."""
EXAMPLE = """\
example:
  zcat corpus.en.gz | python data_scripts/gec/tokenise.py > corpus.tok"""

_AROUND = re.compile(r"^([\"(\[“‘«„]*)(.*?)([.,;:!?\")\]”’»…]*)$")
_CLITIC = re.compile(r"^(.+?)(n't|'s|'re|'ve|'ll|'d|'m)$", re.IGNORECASE)
#: With a full stop of their own: single letters with stops, and some words.
_SHORTENED = re.compile(r"^(([A-Za-z]\.)+[A-Za-z]|etc|vs|cf|Mr|Mrs|Ms|Dr|No)$")


def tokens(line: str) -> Iterator[str]:
    """The tokens of a sentence."""
    for word in line.split():
        found = _AROUND.match(word)
        assert found is not None  # every part may be empty
        before, core, after = found.groups()
        yield from before
        if after.startswith(".") and _SHORTENED.match(core):
            core, after = core + ".", after[1:]
        clitic = _CLITIC.match(core)
        yield from clitic.groups() if clitic else ([core] if core else [])
        yield from re.findall(r"\.{2,}|.", after)


def main(argv: Optional[Sequence[str]] = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        prog="tokenise.py",
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    rewrite(lambda line: " ".join(tokens(line)))


if __name__ == "__main__":
    main()
