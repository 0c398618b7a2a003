"""Edit ratios against the paper's own, and figures by them against sums done by hand."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.api import Session
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.lab.bench.edits import (
    BINS,
    RATIO_NOTE,
    edit_ratio,
    edit_ratios,
    indices_by_bin,
    ratio_rows,
    ratio_table,
)
from specdec_plugin.lab.bench.methods import Method
from specdec_plugin.lab.bench.timing import Timing

TOKENS = st.lists(st.integers(0, 2), max_size=5)


def distance(one, other):
    """By the definition: the last tokens are deleted, inserted, or set against each other."""
    if not one or not other:
        return len(one) + len(other)
    return min(
        distance(one[:-1], other) + 1,
        distance(one, other[:-1]) + 1,
        distance(one[:-1], other[:-1]) + (one[-1] != other[-1]),
    )


@given(TOKENS, TOKENS)
def test_distances(source, output):
    assert edit_ratio(source, output) == distance(source, output) / max(1, len(source))


@pytest.mark.parametrize(
    "source, output, ratio",
    [
        (
            "Nowadays , people use the all-purpose smart phone for communicating .",
            "Nowadays , people use the all-purpose smart phone for communicating .",
            0,
        ),
        (
            "Because that the birth rate is reduced while the death rate is also reduced , the "
            "percentage of the elderly is increased while that of the youth is decreased .",
            "Because the birth rate is reduced while the death rate is also reduced , the "
            "percentage of the elderly is increased while that of the youth is decreased .",
            0.03,
        ),
        (
            "As a result , people have more time to enjoy advantage of modern life .",
            "As a result , people have more time to enjoy the advantages of modern life .",
            0.13,
        ),
        (
            "Nowadays , technology is more advance than the past time .",
            "Nowadays , technology is more advanced than in the past .",
            0.27,
        ),
    ],
)
def test_ratios_of_the_paper(source, output, ratio):
    assert round(edit_ratio(source.split(), output.split()), 2) == ratio


def dictionary(words):
    symbols = Dictionary()
    for word in words.split():
        symbols.add_symbol(word)
    return symbols


def test_ratios_of_two_dictionaries():
    source, target = dictionary("one two only-here"), dictionary("two three one")
    task = SimpleNamespace(source_dictionary=source, target_dictionary=target)
    lines = {3: ("one two two one", "one two three one"), 1: ("only-here two", "two")}
    batches, said = [], {}
    for number, (text, output) in lines.items():
        row = [source.pad(), *map(source.index, text.split()), source.eos()]
        net_input = {"src_tokens": torch.tensor([row])}
        batches.append({"id": torch.tensor([number]), "net_input": net_input})
        tokens = [*map(target.index, output.split()), target.eos()]
        said[number] = {"tokens": torch.tensor(tokens)}
    for name in ("greedy", "fairseq beam 1"):
        timings = {"specdec": Timing(), name: Timing(hypotheses=said)}
        assert edit_ratios(Session(task, []), batches, timings) == [0.25, 0.5]


@given(st.integers(0, 60), st.integers(1, 40))
def test_every_ratio_is_in_one_bin(edits, length):
    assert sum(each.holds(edits / length) for each in BINS) == 1


def test_edges_of_bins():
    ratios = [0.0, 0.069, 7 / 100, 13 / 100, 0.131, 3 / 10, 0.31, 2.0, 0.0]
    assert indices_by_bin(ratios) == {
        "0": [0, 8], "(0, 0.07)": [1], "[0.07, 0.13]": [2, 3], "(0.13, 0.3]": [4, 5],
        "> 0.3": [6, 7],
    }  # fmt: skip
    assert indices_by_bin([0.1]) == {"[0.07, 0.13]": [0]}


def spent(tokens, iterations):
    return Statistics(sentences=1, tokens=tokens, iterations=iterations)


@pytest.fixture
def rows():
    methods = [
        Method("fairseq beam 5", None, None),
        Method("greedy", None, Statistics()),
        Method("input-guided", None, Statistics()),
    ]
    timings = {
        "fairseq beam 5": Timing([6.0, 9.0, 8.0], statistics=[spent(5, 5)] * 3),
        "greedy": Timing([2.0, 3.0, 4.0], statistics=[spent(5, 5)] * 3),
        "input-guided": Timing([1.0, 1.0, 4.0], statistics=[spent(5, 1), spent(7, 3), spent(5, 5)]),
    }
    return ratio_rows([0.0, 0.0, 0.1], methods, timings)


def test_figures_by_ratio(rows):
    assert [(row["edit ratio"], row["method"], row["sentences"]) for row in rows] == [
        (name, method, count)
        for name, count in (("0", 2), ("[0.07, 0.13]", 1))
        for method in ("fairseq beam 5", "greedy", "input-guided")
    ]
    assert [row.get("accepted tokens") for row in rows] == [None, 1, 3, None, 1, 1]
    assert rows[2]["median speed-up over fairseq beam 5"] == 7.5  # of 6 and 9
    assert rows[2]["median speed-up over greedy"] == 2.5  # of 2 and 3
    assert rows[5]["median speed-up over greedy"] == 1 and rows[5]["p50_ms"] == 4000


def test_table_by_ratio(rows):
    lines = ratio_table(rows).splitlines()
    assert lines[:2] == [
        "| edit ratio | method | sentences | p50 ms | × fairseq beam 5 | × greedy "
        "| accepted tokens |",
        "| :--- | :--- | ---: | ---: | ---: | ---: | ---: |",
    ]
    assert lines[2] == "| 0 | fairseq beam 5 | 2 | 7500.0 | 1.00 | 0.33 |  |"
    assert lines[7] == "| [0.07, 0.13] | input-guided | 1 | 4000.0 | 2.00 | 1.00 | 1.00 |"
    assert lines[-1] == RATIO_NOTE
