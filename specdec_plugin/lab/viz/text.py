"""Subword symbols as a person reads them, and how wide they are."""

import unicodedata
from enum import Enum
from typing import Any, Sequence

#: Stands for the space before a SentencePiece, and for the join behind a BPE piece.
SPACE, JOIN = "␣", "‿"
#: Stands for the end of a sentence.
END = "⏎"
#: Changes of direction that a text could smuggle in, and that would reorder all behind it.
_DIRECTIONS = frozenset(["LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"])


class Marks(Enum):
    """How a vocabulary marks where words begin or continue."""

    SENTENCEPIECE = "\u2581"  # before a word
    BPE = "@@"  # behind a piece that the next one continues
    WORDS = ""


def marks_of(dictionary: Any) -> Marks:
    """Which marks the symbols of a fairseq dictionary have."""
    symbols = dictionary.symbols[dictionary.nspecial :]
    if any(symbol.startswith(Marks.SENTENCEPIECE.value) for symbol in symbols):
        return Marks.SENTENCEPIECE
    if any(symbol.endswith(Marks.BPE.value) for symbol in symbols):
        return Marks.BPE
    return Marks.WORDS


def readable(symbol: str, marks: Marks, end: str = "</s>") -> str:
    """One symbol, with its marks replaced by readable ones.

    Args:
        symbol: of the dictionary.
        marks: of the vocabulary.
        end: the symbol that ends sentences.
    """
    if symbol == end:
        return END
    if marks is Marks.SENTENCEPIECE:
        symbol = symbol.replace(marks.value, SPACE)
    elif marks is Marks.BPE and symbol.endswith(marks.value):
        symbol = symbol[: -len(marks.value)] + JOIN
    return visible(symbol)


def visible(text: str) -> str:
    """The text with invisible characters made visible.

    Control characters and changes of direction get their number. A combining mark that
    has no base character gets a dotted circle.
    """
    shown = _escaped(text)
    bare = shown.lstrip(SPACE)
    if bare and unicodedata.category(bare[0]).startswith("M"):
        shown = shown[: len(shown) - len(bare)] + "\u25cc" + bare
    return shown


def _escaped(text: str) -> str:
    return "".join(f"⟨U+{ord(each):04X}⟩" if _hidden(each) else each for each in text)


def _hidden(character: str) -> bool:
    category = unicodedata.category(character)
    return category in ("Cc", "Zl", "Zp") or unicodedata.bidirectional(character) in _DIRECTIONS


def sentence(symbols: Sequence[str], marks: Marks) -> str:
    """The text of symbols, without the end of sentence."""
    if marks is Marks.SENTENCEPIECE:
        text = "".join(symbols).replace(marks.value, " ").strip()
    elif marks is Marks.BPE:
        text = (" ".join(symbols) + " ").replace(marks.value + " ", "").strip()
    else:
        text = " ".join(symbols)
    return _escaped(text)


def cells(text: str) -> int:
    """How wide a text is, in Latin letters: two for an ideograph, none for a combining mark."""
    return sum(
        0
        if unicodedata.category(character) in ("Mn", "Me", "Cf")
        else 2
        if unicodedata.east_asian_width(character) in ("W", "F")
        else 1
        for character in text
    )


def fitted(text: str, width: int) -> str:
    """The text, cut to ``width`` cells, an ellipsis at its end, if it is wider."""
    if cells(text) <= width:
        return text
    kept = ""
    for character in text:
        if cells(kept + character) > width - 1:
            break
        kept += character
    return kept + "…"
