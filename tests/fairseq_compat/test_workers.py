"""Processes that read data are forks."""

import multiprocessing
import subprocess
import sys

import pytest

from specdec_plugin.fairseq_compat.workers import fork_workers
from tests.support.command_lines import ENVIRONMENT

CHOSEN = """
import multiprocessing, sys
from specdec_plugin.fairseq_compat.workers import fork_workers
multiprocessing.set_start_method(sys.argv[1], force=True)
fork_workers()
print(multiprocessing.get_start_method())
"""


def printed(program, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=ENVIRONMENT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


@pytest.mark.parametrize(
    "chosen, found", [("forkserver", "fork"), ("fork", "fork"), ("spawn", "spawn")]
)
def test_a_server_of_forks_is_not_used(chosen, found):
    assert printed(CHOSEN, chosen) == found


def test_another_start_may_be_chosen_later(monkeypatch):
    """Where forks are usual, nothing is decided."""
    told = []
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda allow_none: None)
    monkeypatch.setattr(
        multiprocessing, "set_start_method", lambda method, force: told.append(method)
    )
    for usual, expected in (("fork", []), ("spawn", []), ("forkserver", ["fork"])):
        monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda usual=usual: [usual])
        fork_workers()
        assert told == expected
