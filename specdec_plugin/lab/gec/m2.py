"""M2 files: source sentences and the edits that annotators made to them.

A sentence is a line ``S tokens``, followed by a line for each edit::

    S This are a sentence .
    A 1 2|||R:VERB:SVA|||is|||REQUIRED|||-NONE-|||0
    A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

Here annotator 0 replaces tokens 1 … 2 (end excluded) by "is", and annotator 1 found
nothing to correct.
"""

import logging
from typing import Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

from ...errors import PluginError
from ...textfiles import read_lines

logger = logging.getLogger(__name__)

#: Edits of each annotator, in the order of the file.
Annotations = Dict[int, List["Edit"]]


class Edit(NamedTuple):
    """Tokens ``start`` … ``end - 1`` of the source become the tokens of ``replacement``."""

    start: int
    end: int
    #: Tokens separated by single spaces; empty where the edit deletes.
    replacement: str
    type: str
    annotator: int
    #: Further replacements that the annotator finds as good (``first||second`` in the file).
    alternatives: Tuple[str, ...] = ()


def read_m2_file(path: str) -> Iterator[Tuple[List[str], Annotations]]:
    """:func:`read_m2` of a file, unpacked where its name ends in ``.gz``, a line at a time."""
    return read_m2(read_lines(path), path)


def read_m2(lines: Iterable[str], name: str) -> Iterator[Tuple[List[str], Annotations]]:
    r"""The sentences of an M2 file, one at a time.

    Args:
        lines: of the file, split on ``\n`` only.
        name: of the file, for messages.

    Yields:
        The source tokens, and for each annotator named below the sentence the edits. An
        annotator who found nothing (``noop``) has an empty list; one who is not named is
        absent, so ``{}`` is a sentence without any line of edits.

    Edits beyond the sentence's end, which published files do hold, are left out with a
    warning, as the official scorer leaves them out in silence.

    Raises:
        PluginError: a line is neither of the two kinds, or is not a well-formed edit.
    """
    tokens: List[str] = []
    annotations: Annotations = {}
    begun = False
    for number, line in enumerate(lines, start=1):
        kind, _, rest = line.rstrip("\r\n").partition(" ")
        if kind == "S":
            if begun:
                yield tokens, annotations
            tokens, annotations, begun = rest.split(), {}, True
        elif kind == "A" and begun:
            _add_edit(rest, number, name, tokens, annotations)
        elif kind == "A":
            raise PluginError(
                f"Line {number} of {name} is an edit without a sentence before it. "
                "Put the sentence, 'S tokens', above its edits."
            )
        elif kind and kind != "I":  # I: a note for the reader
            raise PluginError(
                f"Line {number} of {name} begins with neither 'S ' nor 'A ', as lines of M2 do. "
                "Give a file in M2 format, or mend the line."
            )
    if begun:
        yield tokens, annotations


def _add_edit(
    rest: str, number: int, name: str, tokens: Sequence[str], annotations: Annotations
) -> None:
    """Enter the edit of a line, or its annotator alone; see :func:`read_m2`."""
    edit = _parse_edit(rest, f"Line {number} of {name}")
    edits = annotations.setdefault(edit.annotator, [])
    if edit.end > len(tokens):
        logger.warning(
            f"line {number} of {name} edits tokens {edit.start} to {edit.end} of a "
            f"sentence of {len(tokens)} and is left out."
        )
    elif edit.start >= 0:
        edits.append(edit)


def _parse_edit(text: str, where: str) -> Edit:
    """One line without its ``A ``; the edit starts at -1 where there is nothing to correct."""
    fields = text.split("|||")
    try:
        start, end = map(int, fields[0].split())
        kind, annotator = fields[1], int(fields[5])
        corrections = [_replacement(each) for each in fields[2].split("||")]
    except (IndexError, ValueError):
        raise PluginError(
            f"{where} is not an edit. Write it as "
            "'A START END|||TYPE|||REPLACEMENT|||REQUIRED|||-NONE-|||ANNOTATOR'."
        ) from None
    if kind == "noop" or start < 0:
        return Edit(-1, -1, "", kind, annotator)
    if start > end:
        raise PluginError(
            f"{where} edits tokens {start} to {end}. "
            "Correct the two numbers; they count tokens from 0, the end excluded."
        )
    return Edit(start, end, corrections[0], kind, annotator, tuple(corrections[1:]))


def _replacement(text: str) -> str:
    tokens = text.split()
    return "" if tokens == ["-NONE-"] else " ".join(tokens)


def without_overlaps(edits: Iterable[Edit]) -> List[Edit]:
    """The edits from left to right; of two that overlap, the one that begins first.

    Several insertions at one position do not overlap, and keep the order of the file.

    >>> [edit[:3] for edit in without_overlaps(
    ...     [Edit(2, 3, "c", "", 0), Edit(0, 2, "a", "", 0), Edit(1, 2, "b", "", 0)])]
    [(0, 2, 'a'), (2, 3, 'c')]
    """
    kept: List[Edit] = []
    for edit in sorted(edits, key=lambda edit: (edit.start, edit.end)):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
    return kept


def apply_edits(tokens: Sequence[str], edits: Iterable[Edit]) -> List[str]:
    """The corrected tokens; edits may come in any order (see :func:`without_overlaps`).

    >>> apply_edits("it rain today".split(), [Edit(1, 2, "is raining", "R:VERB", 0)])
    ['it', 'is', 'raining', 'today']
    """
    corrected: List[str] = []
    position = 0
    for edit in without_overlaps(edits):
        corrected += tokens[position : edit.start]
        corrected += edit.replacement.split()
        position = edit.end
    return corrected + list(tokens[position:])
