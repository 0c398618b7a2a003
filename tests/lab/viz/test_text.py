"""Marks of subwords, characters that cannot be seen, and widths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.lab.viz.text import Marks, cells, fitted, marks_of, readable, sentence, visible
from tests.support.charts import Symbols

PIECES, BPE, WORDS = Marks.SENTENCEPIECE, Marks.BPE, Marks.WORDS


@pytest.mark.parametrize(
    "words, marks",
    [(["▁a", "b"], PIECES), (["a@@", "b"], BPE), (["a", "b@c"], WORDS), ([], WORDS)],
)
def test_marks_of(words, marks):
    assert marks_of(Symbols(words)) is marks


@pytest.mark.parametrize(
    "symbol, marks, shown",
    [
        ("▁casa", PIECES, "␣casa"),
        ("s", PIECES, "s"),
        ("▁", PIECES, "␣"),
        ("Haus@@", BPE, "Haus‿"),
        ("@@", BPE, "‿"),
        ("a@@", WORDS, "a@@"),
        ("</s>", PIECES, "⏎"),
        ("<unk>", BPE, "<unk>"),
        ("▁שלום", PIECES, "␣שלום"),
        ("a\u202eb\t", WORDS, "a⟨U+202E⟩b⟨U+0009⟩"),
        ("\u093f", PIECES, "\u25cc\u093f"),  # a vowel sign with no letter before it
        ("▁\u064b", PIECES, "␣\u25cc\u064b"),
    ],
)
def test_readable(symbol, marks, shown):
    assert readable(symbol, marks) == shown


@pytest.mark.parametrize(
    "symbols, marks, text",
    [
        (["▁La", "▁casa", "s", "."], PIECES, "La casas."),
        (["これ", "は"], PIECES, "これは"),
        (["Haus@@", "tür", "zu@@"], BPE, "Haustür zu"),
        (["la", "casa"], WORDS, "la casa"),
        ([], PIECES, ""),
        (["a\u2067b"], WORDS, "a⟨U+2067⟩b"),
    ],
)
def test_sentence(symbols, marks, text):
    assert sentence(symbols, marks) == text


def test_cells():
    assert cells("casa") == 4 and cells("並列") == 4 and cells("e\u0301\u200d") == 1


@given(st.text(), st.integers(2, 20))
def test_fitted(text, width):
    found = fitted(text, width)
    assert cells(found) <= width
    assert found == text or (found.endswith("…") and text.startswith(found[:-1]))


@given(st.text())
def test_nothing_changes_the_direction_behind_it(text):
    assert not {*visible(text)} & {*"\u202a\u202b\u202d\u202e\u2066\u2067\u2068\n\r\0"}
