"""Texts are taken apart and joined again, and nothing between sentences is lost."""

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.serve.segments import escaped, joined, of_markup, of_text, without_blank

LINES = st.text(st.sampled_from("ab  \t\n\r\u2028é.<&"), max_size=30)


def sentences(segments):
    return [each.text for each in segments if each.translated]


@given(LINES)
def test_a_text_round_trip(text):
    segments = of_text(text)
    assert joined(segments, sentences(segments)) == text
    assert all(each == each.strip() and each for each in sentences(segments))
    assert not any("\n" in each or "\r" in each for each in sentences(segments))


def test_lines_are_sentences():
    segments = of_text("  One.\r\n\n\tTwo three. \n")
    assert sentences(segments) == ["One.", "Two three."]
    assert joined(segments, ["Uno.", "Dos tres."]) == "  Uno.\r\n\n\tDos tres. \n"


@pytest.mark.parametrize(
    "split, text, found",
    [
        (of_text, "One\n \u200b\n<", "Uno\n \u200b\n<"),
        (of_markup, "One<p>&#8203;<p>&lt;", "Uno<p>\u200b<p>&lt;"),
    ],
)
def test_sentences_without_words_stay(split, text, found):
    blank = ("\u200b", "<").__contains__
    segments = without_blank(split(text), blank, split is of_markup)
    assert sentences(segments) == ["One"] and joined(segments, ["Uno"]) == found


@pytest.mark.parametrize(
    "markup, found",
    [
        ("<p class='x'>One &amp; <b>two</b>\n three.</p>", ["One &", "two", "three."]),
        ("<!DOCTYPE html><!-- no --><br/>One<br>", ["One"]),
        ("<script>if (a < b) one();</script>two", ["two"]),
        ("<pre>one\n  two &lt;</pre> three", ["three"]),
        ("<code/>one</code> two <pre/>three", ["two"]),
        ("<svg><style/></svg><svg/> one <math><code/></math></math>two", ["one", "two"]),
        ("<p/>one<code/>", ["one"]),
        ("<pre><code>x</pre> three <b>four</b>", ["three", "four"]),
        ("<pre><code>x</code> y</samp> z</pre> three", ["three"]),
        ("one &lt; two &eacute;", ["one < two é"]),
        ("<![CDATA[a > b]]>one<![if !IE]>two<![endif]></DIV>", ["one", "two"]),
        ("x <![y[z]]> w", ["x", "w"]),
        ("x <![ y", ["x"]),
        ("x <!-- y <b>z</b>", ["x"]),
        ("x <!-- y --!> z", ["x", "z"]),
        ("x<!-->y<!--->z<!---->w", ["x", "y", "z", "w"]),
        ("x <!doctype html> y", ["x", "y"]),
        ("x<?php z ?> y", ["x", "y"]),
        ("<p>&nbsp;x&nbsp;y &#160;</p>", ["x y"]),
        ("<iframe>x <b>y</b></iframe>z", ["z"]),
        ("one\n  two", ["one two"]),
        ("1 < 2 and <", ["1 < 2 and <"]),
        ("", []),
    ],
)
def test_texts_of_markup(markup, found):
    segments = of_markup(markup)
    assert sentences(segments) == found
    same = joined(segments, map(escaped, found))
    assert "".join(html.unescape(same).split()) == "".join(html.unescape(markup).split())


def test_tags_stay_as_they_are_written():
    before, middle = "<P CLASS=x>", "<!-- &lt; --><pre>&lt;\n&#60;</pre>&nbsp;\n<b/ >"
    segments = of_markup(f"{before}one</P >two< br >&amp;{middle}three")
    assert joined(segments, ["1", "2", "3"]) == f"{before}1</P >2{middle}3"


def test_a_translation_opens_no_tag():
    segments = of_markup("<i>one</i>")
    assert joined(segments, [escaped("<script>&")]) == "<i>&lt;script&gt;&amp;</i>"


@given(st.text(st.sampled_from("<>/!-&;apre s[]\"'="), max_size=40))
def test_of_broken_markup_nothing_is_lost(markup):
    segments = of_markup(markup)
    same = joined(segments, map(escaped, sentences(segments)))
    assert "".join(html.unescape(same).split()) == "".join(html.unescape(markup).split())
