"""Memory that is kept from one batch to the next."""

import pytest

from specdec_plugin.engine import room
from specdec_plugin.engine.room import Room


@pytest.fixture(autouse=True)
def most(monkeypatch):
    monkeypatch.setattr(room, "MOST", 1000)


def test_smaller_results_lie_where_a_larger_one_was():
    kept = Room()
    first = kept.take(4, 100)
    where = first.data_ptr()
    assert first.shape == (4, 100)
    assert kept.take(2, 7, 3).shape == (2, 7, 3)
    assert kept.take(20).data_ptr() == where
    assert kept.take(500).data_ptr() == where  # a quarter more is kept than was asked for
    assert kept.take(0, 5).shape == (0, 5)


def test_a_larger_result_gets_larger_memory():
    kept = Room()
    kept.take(10).fill_(1)
    kept.take(900).fill_(2)
    assert kept.take(1000).fill_(3).sum() == 3000


def test_huge_results_are_not_kept():
    kept = Room()
    kept.take(1000)
    assert kept.take(1001).fill_(1).sum() == 1001
    assert kept._memory is None
    assert kept.take(3).shape == (3,)


def test_rooms_share_nothing():
    one, other = Room().take(5).fill_(1), Room().take(5).fill_(2)
    assert (one.tolist(), other.tolist()) == ([1] * 5, [2] * 5)
