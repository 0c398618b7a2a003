"""Settling iterations and edges against their definitions."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.lab.viz.graph import drawn_edges, parallel, settling_iterations

whens = st.lists(st.integers(1, 6), min_size=1, max_size=12)


def dependencies(settled):
    """All edges: a token depends on each one before it that settled in an earlier iteration."""
    places = range(len(settled))
    return {(i, j) for j in places for i in range(j) if settled[i] < settled[j]}


@st.composite
def matrices(draw):
    rows, columns = draw(st.integers(1, 7)), draw(st.integers(1, 9))
    row = st.lists(st.booleans(), min_size=columns, max_size=columns)
    return [*draw(st.lists(row, min_size=rows - 1, max_size=rows - 1)), [True] * columns]


@given(matrices())
def test_settling_is_for_good(right):
    found = settling_iterations(torch.tensor(right))
    for place, when in enumerate(found):
        column = [row[place] for row in right]
        assert all(column[when - 1 :])
        assert when == 1 or not column[when - 2]


@given(whens)
def test_edges_by_brute_force(settled):
    every = dependencies(settled)
    needed = {
        (i, j)
        for i, j in every
        if not any((i, k) in every and (k, j) in every for k in range(len(settled)))
    }
    assert drawn_edges(settled) == sorted(needed, key=lambda edge: edge[::-1])


@given(whens)
def test_what_is_not_drawn_is_implied(settled):
    paths = set(drawn_edges(settled))
    for middle in range(len(settled)):  # Warshall
        paths |= {(i, j) for i, k in paths if k == middle for m, j in paths if m == middle}
    assert paths == dependencies(settled)


def test_greedy_is_a_chain():
    assert drawn_edges([1, 2, 3, 4]) == [(0, 1), (1, 2), (2, 3)]
    assert len(dependencies([1, 2, 3, 4])) == 6


def test_parallel_tokens_share_what_came_before():
    settled = [1, 2, 2, 3, 1]
    assert drawn_edges(settled) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert parallel(settled) == [True, True, True, False, True]
