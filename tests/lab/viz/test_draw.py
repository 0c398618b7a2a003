"""Figures hold what the chart says."""

import re
import xml.etree.ElementTree as ET

import pytest

from specdec_plugin.lab.viz import draw as drawing
from specdec_plugin.lab.viz.draw import draw
from specdec_plugin.lab.viz.text import cells
from tests.support.charts import jacobi, speculation


def texts_of(svg):
    """matplotlib names the texts whose shapes it draws in comments."""
    return [text.strip() for text in re.findall("<!--(.*?)-->", svg)]


def drawn(chart, folder):
    png, svg = draw(chart, str(folder))
    assert (png, svg) == (f"{folder}/{chart.name}.png", f"{folder}/{chart.name}.svg")
    with open(png, "rb") as file:
        assert file.read(4) == b"\x89PNG"
    with open(svg, encoding="utf-8") as file:
        text = file.read()
    assert ET.fromstring(text).tag.endswith("svg")
    return texts_of(text)


def test_matrix_and_graph(tmp_path):
    chart = jacobi(["▁uno", "▁dos", "▁tr", "es"])
    texts = drawn(chart, tmp_path)
    assert texts[:4] == ["source", "one", "output", "uno dos tres"]
    assert chart.summary in texts and "␣tr" in texts and "iteration 3" in texts
    numbers = [f"{cell.probability:.2f}" for line in chart.lines for cell in line.cells
               if cell.kind in ("right", "settles")]  # fmt: skip
    assert sorted(text for text in texts if re.fullmatch(r"\d\.\d\d", text)) == sorted(numbers)
    assert not any("verifier" in text for text in texts)


def test_drafts(tmp_path):
    texts = drawn(speculation(), tmp_path)
    assert "1 draft" in texts and "1 verifier" in texts and "2 verifier" not in texts
    for words in ("top-β", "bifurcation", "discarded", "own token", "earlier iterations"):
        assert any(words in text for text in texts)
    assert texts.count("␣otro") == 2


def test_texts_are_not_formulas_or_markup(tmp_path):
    texts = drawn(jacobi(["▁$x_1$", "▁<b>", "▁a--b", "▁$"], source=("▁$y", "▁$")), tmp_path)
    assert "$y $" in texts and "␣$x_1$" in texts


def test_nothing_but_the_end(tmp_path):
    texts = drawn(jacobi([], source=()), tmp_path)
    assert "(empty)" in texts and "⏎" in texts
    assert "1 token in 1 iteration: 1.00 an iteration" in texts


def test_a_long_sentence_is_drawn_with_fewer_texts_and_dots(tmp_path, monkeypatch):
    monkeypatch.setattr(drawing, "MOST_TEXTS", 50)
    monkeypatch.setattr(drawing, "PIXELS", 100_000)
    chart = jacobi([f"▁w{number}" for number in range(20)])
    texts = drawn(chart, tmp_path)
    assert len([text for text in texts if re.fullmatch(r"\d\.\d\d", text)]) == 21
    from matplotlib.image import imread

    height, width, _ = imread(tmp_path / "sentence-0.png").shape
    assert 80_000 < height * width < 110_000


@pytest.mark.parametrize(
    "text", ["", "one two three four", "並列復号の短い例文です", "a" * 23 + " b", "  a  "]
)
def test_lines_are_wrapped(text):
    lines = drawing._wrapped(text, 7)
    assert all(cells(line) <= 7 for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")
