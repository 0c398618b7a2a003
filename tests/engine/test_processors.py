"""A thread that slept wakes up beside the thread that wakes it, not on its processor."""

import ctypes
import os
import sys
import threading
import time

import pytest

from specdec_plugin.engine.native import interface

from ..support.own_kernels import loaded

TEAM = """
#pragma once
#include "engine/native/team.h"
#include "interface.h"
namespace native {
// out: (2) the processors of two threads when they begin.
extern "C" void team_run(int* out) {
  parallel(2, [&](const Team& team) { out[team.index] = processor(); });
}
}  // namespace native
"""

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two processors of Linux",
)


@pytest.fixture
def team(registry, tmp_path):
    """Runs a job on two threads; tells the processors on which they began."""
    (tmp_path / "team.h").write_text(TEAM)
    interface.Header(str(tmp_path / "module.py"), "team.h")
    library, out = loaded(tmp_path), (ctypes.c_int * 2)()

    def run():
        library.team_run(out)
        return list(out)

    return run


def allowed():
    """The processors of each thread of this process."""
    return [os.sched_getaffinity(int(thread)) for thread in os.listdir("/proc/self/task")]


def test_a_woken_thread_begins_on_another_processor(team):
    team()
    apart = 0
    for _ in range(20):
        time.sleep(0.05)  # the other thread sleeps, and its processor idles
        own, other = team()
        apart += own != other
    assert apart >= 15  # The system may move a thread meanwhile.


def test_a_woken_thread_may_run_anywhere_again(team):
    before = set(map(frozenset, allowed()))
    team()
    for _ in range(5):
        time.sleep(0.02)
        team()
    assert set(map(frozenset, allowed())) == before


def test_threads_of_one_processor_wake_up_there(team):
    """In a thread of its own, whose helpers inherit its only processor."""
    found = []

    def decode():
        only = min(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {only})
        for _ in range(3):
            found.append(team() == [only, only])
            time.sleep(0.02)

    thread = threading.Thread(target=decode)
    thread.start()
    thread.join(60)
    assert found == [True] * 3
