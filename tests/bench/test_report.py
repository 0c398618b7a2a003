"""Figures of the benchmark against sums done by hand."""

import pytest
import torch

from specdec_plugin.bench.methods import Method
from specdec_plugin.bench.report import markdown, summarise
from specdec_plugin.bench.timing import Timing
from specdec_plugin.decoding.trace import Trace


def timing(seconds, *tokens):
    rows = {number: {"tokens": torch.tensor(each)} for number, each in enumerate(tokens)}
    return Timing(list(seconds), rows)


@pytest.fixture
def rows():
    trace = Trace()
    trace.count([4, 4], [4, 1], [5, 2])
    methods = [
        Method("fairseq beam 5", None, None),
        Method("fairseq beam 1", None, None),
        Method("specdec", None, trace),
    ]
    timings = {
        "fairseq beam 5": timing([4.0, 9.0, 8.0], [4, 2], [5, 2], [6, 2]),
        "fairseq beam 1": timing([2.0, 3.0, 4.0], [4, 2], [5, 2], [7, 2]),
        "specdec": timing([1.0, 1.0, 2.0], [4, 2], [5, 2], [7, 8, 2]),
    }
    texts = {name: ["a b c d e", "f g h i j", "k l m n o"] for name in timings}
    references = ["a b c d e", "f g h i j", "k l m n o"]
    return summarise(methods, timings, texts, references)


def test_speed(rows):
    ours = rows[2]
    assert ours["median speed-up over fairseq beam 5"] == 4.0  # of 4, 9 and 4
    assert ours["median speed-up over fairseq beam 1"] == 2.0  # of 2, 3 and 2
    assert ours["total speed-up over fairseq beam 5"] == pytest.approx(21 / 4)
    assert (ours["p50_ms"], ours["p99_ms"]) == (1000, 2000)
    assert "median speed-up over greedy" not in ours


def test_quality(rows):
    assert [row["equal to fairseq greedy"] for row in rows] == [2, 3, 2]
    assert rows[2]["accepted tokens"] == 3.5
    assert rows[2]["tokens"] == 7
    assert rows[0]["bleu"] == pytest.approx(100)
    assert "tok:13a" in rows[0]["bleu signature"]


def test_table_has_a_line_for_each_method_and_a_cell_for_each_column(rows):
    lines = markdown(rows).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(rows)
    assert len({line.count("|") for line in table}) == 1
    assert "| 2 of 3 |" in table[2]
