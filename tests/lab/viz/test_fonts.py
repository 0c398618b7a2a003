"""Fonts are looked for where characters are missing, and right-to-left text is in order."""

import sys
from types import SimpleNamespace

import pytest

from specdec_plugin.lab.viz import fonts
from specdec_plugin.lab.viz.fonts import families_for, in_drawing_order
from specdec_plugin.lab.viz.text import END, JOIN, SPACE


def test_the_usual_font_has_our_signs(caplog):
    assert len(families_for(["Canción " + SPACE + JOIN + END + "…"])) == 1
    assert not caplog.records


def test_characters_without_a_font_are_named(caplog):
    families = families_for(["a\U0010fffd b"])
    assert len(families) == 1  # not the font of boxes that comes with matplotlib
    assert "U+10FFFD" in caplog.text and "fonts-noto" in caplog.text and "U+0061" not in caplog.text


def test_joiners_need_no_glyph(caplog):
    families_for(["a\u200d\u200f\ufe0f\u2003b"])
    assert not caplog.records


def test_another_font_is_found_by_what_it_has(monkeypatch, caplog):
    """Two fonts of this machine play one that lacks characters and one that has them."""
    covered = {"a": {"x"}, "b": {"x", "y"}}
    entries = [SimpleNamespace(fname=name, name=name.upper()) for name in covered]
    monkeypatch.setattr(fonts, "_installed", lambda: entries)
    monkeypatch.setattr(fonts, "_covered", lambda path, wanted: covered.get(path, set()) & wanted)
    usual = families_for([""])
    assert families_for(["xy"]) == [*usual, "B"]
    assert families_for(["xyz"]) == [*usual, "B"]
    assert "z (U+007A)" in caplog.text


@pytest.fixture
def old_matplotlib(monkeypatch):
    monkeypatch.setattr(fonts, "SHAPES", False)
    fonts._warn_of_order.cache_clear()


HEBREW = "שלום"


def test_old_matplotlib_gets_text_in_order(old_matplotlib, monkeypatch):
    reshaper = SimpleNamespace(reshape=lambda text: text)
    bidi = SimpleNamespace(get_display=lambda text: text[::-1])
    monkeypatch.setitem(sys.modules, "arabic_reshaper", reshaper)
    monkeypatch.setitem(sys.modules, "bidi", SimpleNamespace(algorithm=bidi))
    monkeypatch.setitem(sys.modules, "bidi.algorithm", bidi)
    assert in_drawing_order(HEBREW) == HEBREW[::-1]
    assert in_drawing_order("casa") == "casa"


def test_old_matplotlib_without_help_is_told_once(old_matplotlib, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "arabic_reshaper", None)
    assert [in_drawing_order(HEBREW), in_drawing_order(HEBREW)] == [HEBREW, HEBREW]
    assert len(caplog.records) == 1 and "specdec-plugin[viz]" in caplog.text


def test_new_matplotlib_needs_no_help(monkeypatch):
    monkeypatch.setattr(fonts, "SHAPES", True)
    assert in_drawing_order(HEBREW) == HEBREW
