"""Figures of the benchmark against sums done by hand."""

import pytest
import torch

from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.lab.bench.memory import Memory
from specdec_plugin.lab.bench.methods import Method, equals_of
from specdec_plugin.lab.bench.report import (
    markdown,
    memory_table,
    parts_table,
    percentile,
    summarise,
)
from specdec_plugin.lab.bench.timing import Timing


def timing(seconds, *tokens):
    rows = {number: {"tokens": torch.tensor(each)} for number, each in enumerate(tokens)}
    return Timing(list(seconds), rows)


@pytest.fixture
def rows():
    counted = Statistics()
    counted.count([4, 4], [4, 1], [5, 2])
    counted.seconds.update(encoder=0.5, drafter=1.0, verifier=1.5, projection=0.5, total=4.0)
    methods = [
        Method("fairseq beam 5", None, None),
        Method("fairseq beam 1", None, None),
        Method("specdec", None, counted),
    ]
    timings = {
        "fairseq beam 5": timing([4.0, 9.0, 8.0], [4, 2], [5, 2], [6, 2]),
        "fairseq beam 1": timing([2.0, 3.0, 4.0], [4, 2], [5, 2], [7, 2]),
        "specdec": timing([1.0, 1.0, 2.0], [4, 2], [5, 2], [7, 8, 2]),
    }
    texts = {name: ["a b c d e", "f g h i j", "k l m n o"] for name in timings}
    references = ["a b c d e", "f g h i j", "k l m n o"]
    memory = {"specdec": Memory(30_000_000, 10_000_000, 5_500_000, 1_000_000)}
    return summarise(methods, timings, texts, references, memory)


def test_speed(rows):
    ours = rows[2]
    assert ours["median speed-up over fairseq beam 5"] == 4.0  # of 4, 9 and 4
    assert ours["median speed-up over fairseq beam 1"] == 2.0  # of 2, 3 and 2
    assert ours["total speed-up over fairseq beam 5"] == pytest.approx(21 / 4)
    assert (ours["p50_ms"], ours["p99_ms"]) == (1000, pytest.approx(1980))
    assert "median speed-up over greedy" not in ours


def test_quality(rows):
    assert [row["equal to fairseq greedy"] for row in rows] == [2, 3, 2]
    assert rows[2]["accepted tokens"] == 3.5
    assert rows[2]["tokens"] == 7
    assert rows[0]["bleu"] == pytest.approx(100)
    assert "tok:13a" in rows[0]["bleu signature"]


def test_whose_hypotheses_are_equal():
    said = {
        "fairseq beam 5": timing([1.0], [4, 2], [5, 2]),
        "greedy": timing([1.0], [4, 2], [6, 2]),
        "beam": timing([1.0], [4, 2], [5, 2]),
    }
    methods = [
        Method("fairseq beam 5", None, None),
        Method("greedy", None, None),
        Method("beam", None, None, equal_to=equals_of(5)),
    ]
    rows = summarise(methods, said, {}, None)
    assert [row.get("equal to greedy") for row in rows] == [1, 2, None]
    assert [row.get("equal to fairseq beam 5") for row in rows] == [None, None, 2]
    assert "| equal to greedy | equal to fairseq beam 5 |" in markdown(rows)
    assert rows[0]["tokens"] == 4 and "| 4 |" in markdown(rows)  # tokens a second
    assert equals_of(1, sampling=True) == ("greedy",)


def test_bleu_of_other_scripts():
    said = {"greedy": timing([1.0], [4, 2])}
    for tokenize, near in (("char", True), ("13a", False)):
        texts, references = {"greedy": ["日本語で話す"]}, ["日本語で話す。"]
        methods = [Method("greedy", None, None)]
        (row,) = summarise(methods, said, texts, references, bleu_tokenize=tokenize)
        assert (row["bleu"] > 50) is near
        assert f"tok:{tokenize}" in row["bleu signature"]


@pytest.mark.parametrize(
    "values, percent, value",
    [
        ([3.0, 1.0, 2.0], 50, 2.0),
        ([3.0, 1.0, 2.0], 100, 3.0),
        ([4.0, 1.0, 3.0, 2.0], 50, 2.5),  # the median
        (list(range(101)), 90, 90),
        (list(range(201)), 99, 198),
        ([7.0], 90, 7.0),
    ],
)
def test_percentiles(values, percent, value):
    assert percentile(values, percent) == value


def test_repetition_and_iterations(rows):
    assert [row["repetition percent"] for row in rows] == [0, 0, 0]
    methods = [Method("greedy", None, None)]
    said = {"greedy": timing([1.0, 1.0], [4, 4, 5, 5, 2], [6, 2], [2, 2])}
    (row,) = summarise(methods, said, {}, None)
    assert row["repetition percent"] == pytest.approx(100 * 2 / 6)  # without ends of sentences
    assert row["equal to greedy"] == 3
    assert rows[2]["iterations"] == 2 and "iterations" not in rows[0]


def test_time_by_part_is_in_percent(rows):
    lines = parts_table(rows).splitlines()
    parts = "| time by part, % | encoder | drafter | verifier | projection | rest |"
    assert lines[0] == f"{parts} projection, µs a token |"
    assert lines[2:] == ["| specdec | 12 | 25 | 38 | 12 | 12 | 71428.6 |"]
    assert parts_table(rows[:2]) is None


def test_memory_is_in_megabytes(rows):
    assert rows[2]["memory in MB"]["peak"] == pytest.approx(46.5)
    lines = memory_table(rows).splitlines()
    assert lines[2] == "| specdec | 30.0 | 10.0 | 5.5 | 1.0 | 46.5 |"
    assert memory_table(rows[:2]) is None


def test_table_has_a_line_for_each_method_and_a_cell_for_each_column(rows):
    lines = markdown(rows).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert len(table) == 2 + len(rows)
    assert len({line.count("|") for line in table}) == 1
    assert "| 2 of 3 |" in table[2]
