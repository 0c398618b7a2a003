"""One self-contained HTML page on which a person steps through the iterations."""

import json
from pathlib import Path
from typing import Any, Dict, List, Sequence

from .chart import Cell, Chart
from .kinds import Kind

#: The data replaces this.
MARKER = "{{DATA}}"


def page(charts: Sequence[Chart]) -> str:
    """The page's source; it needs nothing but itself.

    Args:
        charts: of at least one sentence.
    """
    template = Path(__file__).with_name("page.html").read_text("utf-8")
    before, after = template.split(MARKER)
    kinds = {kind.value: kind.legend for kind in Kind}
    return before + embedded({"charts": [_plain(each) for each in charts], "kinds": kinds}) + after


def embedded(data: Any) -> str:
    """JSON that may stand in a script element, whatever texts are in it.

    No ``<`` is left in it, so that no text can close the element or open a comment.
    """
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _plain(chart: Chart) -> Dict[str, Any]:
    """The chart as JSON has it; probabilities with six digits."""
    return {
        "name": chart.name,
        "source": chart.source,
        "output": chart.output,
        "summary": chart.summary,
        "columns": chart.columns,
        "lines": [
            {"iteration": line.iteration, "label": line.label, "cells": _plain_cells(line.cells)}
            for line in chart.lines
        ],
        "settled": chart.settled,
        "parallel": chart.parallel,
        "edges": chart.edges,
    }


def _plain_cells(cells: Sequence[Any]) -> List[Any]:
    return [None if cell is None else _plain_cell(cell) for cell in cells]


def _plain_cell(cell: Cell) -> List[Any]:
    probability = None if cell.probability is None else round(cell.probability, 6)
    return [cell.text, cell.kind.value, probability]
