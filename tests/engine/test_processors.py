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

static Elsewhere elsewhere;

// The calling thread stands for one that sleeps, and another one is about to wake it.
extern "C" void team_wake() {
  elsewhere.begin();
  std::thread([] { elsewhere.keep_away(); }).join();
}

extern "C" void team_woken() { elsewhere.release(); }
}  // namespace native
"""

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or len(os.sched_getaffinity(0)) < 2,
    reason="needs two processors of Linux",
)


@pytest.fixture
def library(registry, tmp_path):
    (tmp_path / "team.h").write_text(TEAM)
    interface.Header(str(tmp_path / "module.py"), "team.h")
    return loaded(tmp_path)


@pytest.fixture
def team(library):
    """Runs a job on two threads; tells the processors on which they began."""
    out = (ctypes.c_int * 2)()

    def run():
        library.team_run(out)
        return list(out)

    return run


def in_a_thread(function):
    """Calls it in a thread of its own, so that others keep their processors."""
    thread = threading.Thread(target=function)
    thread.start()
    thread.join(60)


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


def test_processors_that_are_chosen_meanwhile_stay(library):
    found = []

    def wake():
        before = os.sched_getaffinity(0)
        library.team_wake()
        others = os.sched_getaffinity(0)
        found.append(others < before and len(others) == len(before) - 1)
        library.team_woken()
        found.append(os.sched_getaffinity(0) == before)
        library.team_wake()
        chosen = before - os.sched_getaffinity(0)
        os.sched_setaffinity(0, chosen)
        library.team_woken()
        found.append(os.sched_getaffinity(0) == chosen)

    in_a_thread(wake)
    assert found == [True] * 3


def test_threads_that_may_not_run_everywhere_are_set_back(library):
    """The thread may run on two of three processors: not on all again when it was woken."""
    most, found = sorted(os.sched_getaffinity(0)), []
    if len(most) < 3:
        pytest.skip("needs three processors")

    def wake():
        os.sched_setaffinity(0, most[:2])
        library.team_wake()
        found.append(len(os.sched_getaffinity(0)))
        library.team_woken()
        found.append(sorted(os.sched_getaffinity(0)))

    in_a_thread(wake)
    assert found == [1, most[:2]]


def test_threads_of_one_processor_wake_up_there(team):
    """In a thread of its own, whose helpers inherit its only processor."""
    found = []

    def decode():
        only = min(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {only})
        for _ in range(3):
            found.append(team() == [only, only])
            time.sleep(0.02)

    in_a_thread(decode)
    assert found == [True] * 3
