"""Processes that read data are forks."""

import multiprocessing

import pytest

from specdec_plugin.fairseq_compat.workers import fork_workers


@pytest.mark.parametrize("usual, wanted", [("forkserver", "fork"), ("fork", None), ("spawn", None)])
def test_a_server_of_forks_is_not_used(usual, wanted, monkeypatch):
    told = []
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: usual)
    monkeypatch.setattr(
        multiprocessing, "set_start_method", lambda method, force: told.append((method, force))
    )
    fork_workers()
    assert told == ([(wanted, True)] if wanted else [])
