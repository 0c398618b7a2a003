"""The matrix and the graph as a figure.

After Santilli et al. (2023), Figures 4 and 6, and Xia et al. (2023), Table 19.

Everything is drawn on one plane in inches, x to the right and y downwards, so that the
graph's nodes, the matrix's columns and the texts' widths fit each other.
"""

import math
import os
from itertools import accumulate
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

import matplotlib
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch
from matplotlib.path import Path

from .chart import Cell, Chart
from .fonts import families_for, in_drawing_order
from .kinds import Kind
from .text import END, JOIN, SPACE, cells, fitted

#: Text sizes in points, and the width of a cell (a Latin letter) of that size in inches.
SIZE, LETTER = 8.0, 0.073
#: Cells that a token may be wide; longer ones are cut.
WIDEST = 14
#: The greatest figure, in pixels: longer sentences get fewer dots an inch.
PIXELS, DOTS = 40_000_000, 150
#: Above so many cells only those that settle have their text.
MOST_TEXTS = 6_000
MARGIN, ROW, NODE, LEADING = 0.2, 0.24, 0.28, 0.19
INK, GREY, GRID = "#1a1a1a", "#707070", "#cfcfcf"
#: Okabe and Ito's colours, lightened; neighbouring groups of parallel tokens differ.
GROUPS = ("#a6d4f2", "#f6d28f", "#9fdcc4", "#ecc4da", "#f4b994")
FILLS = {
    Kind.BEFORE: "#ececec",
    Kind.ACCEPTED: "#9fdcc4",
    Kind.TOP_BETA: "#a6d4f2",
    Kind.BIFURCATION: "#f4a58a",
    Kind.DISCARDED: "white",
    Kind.VERIFIER: "#f6d28f",
}


def draw(chart: Chart, folder: str) -> List[str]:
    """Draw a sentence.

    Args:
        chart: its content.
        folder: where ``NAME.png`` and ``NAME.svg`` go.

    Returns:
        the two files. In the SVG letters are shapes, so that it looks the same everywhere.
    """
    families = families_for(_texts(chart))
    style: Any = {"font.family": families, "font.size": SIZE, "svg.fonttype": "path"}
    with matplotlib.rc_context(style):
        figure = _Sheet(chart).figure
        width, height = figure.get_size_inches()
        dots = min(DOTS, math.sqrt(PIXELS / (width * height)))
        paths = [os.path.join(folder, f"{chart.name}.{kind}") for kind in ("png", "svg")]
        for path in paths:
            figure.savefig(path, dpi=dots)
    return paths


def _texts(chart: Chart) -> List[str]:
    drawn = [cell.text for line in chart.lines for cell in line.cells if cell is not None]
    return [chart.source, chart.output, *chart.columns, *drawn, SPACE, JOIN, END, "…→"]


class _Box(NamedTuple):
    """A rectangle, by its corners in inches; a strong one has a thick dark edge."""

    corners: List[Tuple[float, float]]
    fill: Any
    strong: bool


class _Sheet:
    """The plane on which a chart is laid out and drawn, from top to bottom."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.crowded = len(chart.lines) * len(chart.columns) > MOST_TEXTS
        labels = max(cells(line.label) for line in chart.lines)
        left = MARGIN + max(labels * LETTER, 0.75) + 0.1
        self.edges = list(accumulate(self._column_widths(), initial=left))
        self.width = max(self.edges[-1] + MARGIN, 7.0)
        self.y = MARGIN
        self.boxes: List[_Box] = []
        self.figure = Figure()
        self.axis = self.figure.add_axes((0, 0, 1, 1))
        self._heading()
        if chart.edges is not None:
            self._graph(chart.edges)
        self._nodes()
        self._matrix()
        self._legend()
        self._finish()

    def _column_widths(self) -> List[float]:
        """In inches: the widest text of each column, up to a limit."""
        widths = []
        for column, label in enumerate(self.chart.columns):
            shown = [line.cells[column] for line in self.chart.lines]
            texts = [label, *(cell.text for cell in shown if cell is not None and cell.text)]
            widest = max(cells(text) for text in texts)
            widths.append(min(max(widest, 4), WIDEST) * LETTER + 0.1)
        return widths

    def _middle(self, column: int) -> float:
        return (self.edges[column] + self.edges[column + 1]) / 2

    def _text(self, x: float, y: float, text: str, **style: Any) -> None:
        given = {"ha": "center", "va": "center_baseline", "color": INK, **style}
        self.axis.text(x, y, in_drawing_order(text), parse_math=False, **given)

    def _box(
        self, x: float, y: float, width: float, height: float, fill: Any, strong: bool
    ) -> None:
        corners = [(x, y), (x + width, y), (x + width, y + height), (x, y + height)]
        self.boxes.append(_Box(corners, fill, strong))

    def _add_boxes(self) -> None:
        """All boxes at once, a hundred times faster; those with strong edges are on top."""
        for strong in (False, True):
            boxes = [box for box in self.boxes if box.strong == strong]
            self.axis.add_collection(
                PolyCollection(
                    [box.corners for box in boxes],
                    facecolors=[box.fill for box in boxes],
                    edgecolors=INK if strong else GRID,
                    linewidths=1.3 if strong else 0.6,
                )
            )

    def _heading(self) -> None:
        """Source, output and figures, in lines as long as the figure is wide."""
        room = int((self.width - 2 * MARGIN - 0.7) / LETTER)
        chart = self.chart
        for label, text in (("source", chart.source), ("output", chart.output)):
            self._text(MARGIN, self.y, label, ha="left", color=GREY)
            for line in _wrapped(text, room) or ["(empty)"]:
                self._text(MARGIN + 0.7, self.y, line, ha="left")
                self.y += LEADING
        self._text(MARGIN + 0.7, self.y, chart.summary, ha="left", color=GREY)
        self.y += LEADING

    def _graph(self, edges: Sequence[Tuple[int, int]]) -> None:
        """Arcs over the nodes, higher for dependencies that reach further."""
        heights = [self._arc_height(*edge) for edge in edges]
        base = self.y + max(heights, default=0.0) + 0.1
        for (start, end), height in zip(edges, heights):
            x, to = self._middle(start), self._middle(end)
            # A cubic curve reaches three quarters of the height of its control points.
            top = base - height * 4 / 3
            curve = Path([(x, base), (x, top), (to, top), (to, base)], [1, 4, 4, 4])
            self.axis.add_patch(
                FancyArrowPatch(path=curve, arrowstyle="-|>", mutation_scale=6, color=GREY)
            )
        self.y = base

    @staticmethod
    def _arc_height(start: int, end: int) -> float:
        return min(0.12 + 0.13 * (end - start), 2.2)

    def _nodes(self) -> None:
        """The output's tokens; those decoded in parallel share a colour."""
        colours = self._group_colours()
        self._text(MARGIN, self.y + NODE / 2, "output", ha="left", color=GREY)
        for column, label in enumerate(self.chart.columns):
            if label:
                width = self.edges[column + 1] - self.edges[column]
                box = self.edges[column] + 0.02, self.y, width - 0.04, NODE
                self._box(*box, colours[column], False)
                self._text(self._middle(column), self.y + NODE / 2, fitted(label, WIDEST))
        self.y += NODE + 0.1

    def _group_colours(self) -> List[str]:
        settled = self.chart.settled
        groups = sorted({when for when, many in zip(settled, self.chart.parallel) if many})
        colour: Dict[int, str] = {
            when: GROUPS[number % len(GROUPS)] for number, when in enumerate(groups)
        }
        return [colour.get(when, "white") for when in settled]

    def _matrix(self) -> None:
        """A row for each line: the iteration, and its cells."""
        last = 0
        for line in self.chart.lines:
            label = line.label if self.chart.edges is None else f"iteration {line.label}"
            if line.iteration != last and self.chart.edges is None:
                self.y += 0.06  # the draft and the result of an iteration are drawn together
            last = line.iteration
            self._text(MARGIN, self.y + ROW / 2, label, ha="left", color=GREY)
            for column, cell in enumerate(line.cells):
                if cell is not None:
                    self._cell(column, cell)
            self.y += ROW
        self.y += 0.12

    def _cell(self, column: int, cell: Cell) -> None:
        x, width = self.edges[column], self.edges[column + 1] - self.edges[column]
        settles = cell.kind is Kind.SETTLES
        self._box(x, self.y, width, ROW, _fill(cell), settles)
        if settles or self.chart.edges is None or not self.crowded:
            shown, style = _writing(cell)
            self._text(x + width / 2, self.y + ROW / 2, shown, **style)

    def _legend(self) -> None:
        """The kinds that occur, in the order of their definition."""
        used = {cell.kind for line in self.chart.lines for cell in line.cells if cell is not None}
        x = MARGIN
        for kind in [kind for kind in Kind if kind in used]:
            width = 0.42 + cells(kind.legend) * LETTER
            if x + width > self.width - MARGIN and x > MARGIN:
                x, self.y = MARGIN, self.y + LEADING
            sample = _fill(Cell("", kind, 0.9))
            self._box(x, self.y, 0.2, 0.14, sample, kind is Kind.SETTLES)
            self._text(x + 0.27, self.y + 0.07, kind.legend, ha="left", color=GREY)
            x += width
        self.y += LEADING
        if self.chart.edges is not None:
            notes = "number: the model's probability; arc: to a token that depends on it; "
            notes += "one colour on top: decoded in parallel"
            self._text(MARGIN, self.y + 0.07, notes, ha="left", color=GREY)
            self.y += LEADING

    def _finish(self) -> None:
        self._add_boxes()
        height = self.y + MARGIN / 2
        self.figure.set_size_inches(self.width, height)
        self.axis.set_xlim(0, self.width)
        self.axis.set_ylim(height, 0)
        self.axis.set_axis_off()


def _fill(cell: Cell) -> Any:
    """The colour of a cell; the more probable a right token was, the deeper its colour."""
    if cell.kind in FILLS:
        return FILLS[cell.kind]
    if cell.kind is Kind.WRONG:
        return "white"
    share = 0.12 + 0.5 * (cell.probability or 0.0)
    return tuple(1 - share * (1 - part) for part in matplotlib.colors.to_rgb("#0072B2"))


def _writing(cell: Cell) -> Tuple[str, Dict[str, Any]]:
    """The text of a cell and its form: a number if the column names the token already."""
    if cell.kind in (Kind.SETTLES, Kind.RIGHT):
        return f"{cell.probability:.2f}", {"weight": "bold"} if cell.kind is Kind.SETTLES else {}
    colour = GREY if cell.kind in (Kind.WRONG, Kind.DISCARDED, Kind.BEFORE) else INK
    return fitted(cell.text, WIDEST), {"color": colour}


def _wrapped(text: str, width: int) -> List[str]:
    """Lines of at most ``width`` cells, broken at spaces; a longer word is broken anywhere."""
    lines = [""]
    for word in text.split():
        joined = f"{lines[-1]} {word}".lstrip()
        if cells(joined) <= width:
            lines[-1] = joined
            continue
        lines.append(word)
        while cells(lines[-1]) > width:
            first = fitted(lines[-1], width + 1)[:-1] or lines[-1][0]
            lines[-1:] = [first, lines[-1][len(first) :]]
    return [line for line in lines if line]
