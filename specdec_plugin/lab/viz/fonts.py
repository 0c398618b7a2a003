"""Fonts with the characters of a text, and the order in which matplotlib draws them."""

import functools
import importlib
import logging
import unicodedata
from typing import Iterable, List, Set

from matplotlib import font_manager, ft2font, rcParams
from matplotlib.font_manager import FontEntry, FontProperties, fontManager

logger = logging.getLogger(__name__)

#: Whether matplotlib itself (3.11 and newer) joins letters and orders them from right to left.
SHAPES = hasattr(ft2font, "__libraqm_version__")


def families_for(texts: Iterable[str]) -> List[str]:
    """A list for ``font.family`` whose fonts together have all characters of the texts.

    The usual family comes first; of the others on this machine as few as possible, those
    with most of what is missing first. A warning names the characters that none has.

    Args:
        texts: what will be drawn.
    """
    families = list(rcParams["font.family"])
    missing = {character for text in texts for character in text if _has_ink(character)}
    missing -= _covered(font_manager.findfont(FontProperties(family=families)), missing)
    found = [(each.name, _covered(each.fname, missing)) for each in _installed()] if missing else []
    while missing:
        name, covered = max(found, key=lambda each: len(each[1] & missing), default=("", set()))
        if not covered & missing:
            _warn(missing)
            break
        families.append(name)
        missing -= covered
    return families


def _has_ink(character: str) -> bool:
    """False for spaces, joiners and variation selectors, which are drawn without a glyph."""
    formatting = unicodedata.category(character) == "Cf" or "\ufe00" <= character <= "\ufe0f"
    return not (character.isspace() or formatting)


def _installed() -> List[FontEntry]:
    """The system's upright fonts of normal weight, those installed after matplotlib's list too."""
    known = {entry.fname for entry in fontManager.ttflist}
    for path in sorted(set(font_manager.findSystemFonts()) - known):
        try:
            fontManager.addfont(path)
        except (OSError, RuntimeError):  # no font that FreeType reads
            continue
    return [
        entry
        for entry in fontManager.ttflist
        if entry.style == "normal"
        and entry.weight in (400, "normal", "regular")
        and not entry.name.startswith("Last Resort")  # has a box for every character
    ]


def _covered(path: str, characters: Set[str]) -> Set[str]:
    """Those of the characters that the font has and can draw at any size."""
    try:
        font = ft2font.FT2Font(path)
    except (OSError, RuntimeError):  # the file is gone, or no font that FreeType reads
        return set()
    if not font.scalable:  # emoji of pixels, which matplotlib cannot draw
        return set()
    return {each for each in characters if font.get_char_index(ord(each)) != 0}


def _warn(missing: Set[str]) -> None:
    names = ", ".join(f"{each} (U+{ord(each):04X})" for each in sorted(missing)[:20])
    more = f" and {len(missing) - 20} more" if len(missing) > 20 else ""
    logger.warning(
        f"No installed font has {names}{more}: the figures show boxes instead, and the page what "
        "its browser finds. Install fonts that have them, for example Noto (Debian: "
        "fonts-noto-core, fonts-noto-cjk), and run this again."
    )


def in_drawing_order(text: str) -> str:
    """The text in the order that matplotlib needs, so that it is drawn as it is read.

    Newer versions need no help. For older ones right-to-left text is joined and reordered
    here, if the packages for that are there (``pip install 'specdec-plugin[viz]'``); if
    not, one warning names the cure.
    """
    if SHAPES or not any(_right_to_left(each) for each in text):
        return text
    try:
        reshaper = importlib.import_module("arabic_reshaper")
        bidi = importlib.import_module("bidi.algorithm")
    except ImportError:
        _warn_of_order()
        return text
    return str(bidi.get_display(reshaper.reshape(text)))


def _right_to_left(character: str) -> bool:
    return unicodedata.bidirectional(character) in ("R", "AL")


@functools.cache
def _warn_of_order() -> None:
    logger.warning(
        "This version of matplotlib draws right-to-left text backwards in the figures (the page "
        "is right). Install matplotlib 3.11 or newer, or: pip install 'specdec-plugin[viz]'."
    )
