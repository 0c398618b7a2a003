"""Where memory is full, kernels end with an error of Python, and not Python itself."""

import ctypes

import pytest

from specdec_plugin.decoding.watch import WatchCall
from specdec_plugin.engine.native import interface

from ..support.own_kernels import loaded

WATCH_CALL = interface._structures[WatchCall.__name__]

FULL = """
#pragma once
#include "decoding/workers.h"
#include "engine/native/room.h"
#include "engine/native/team.h"
#include "interface.h"
namespace native {
class Large {
 public:
  explicit Large(int64_t count) : numbers(count) {}
  Aligned<float> numbers;
};
struct Job {
  std::vector<int> last = std::vector<int>(16);
  void prepare(const int* done, int begin, int, int) {
    if (begin == *done) throw std::bad_alloc();
  }
  void run(const Team&) {}
};
// Three parts on two threads: the part that begins with `which` finds no room.
extern "C" void parts_run(int which) { in_parts<Job>(&which, 3, 1, 2); }

// Two workers, of which one finds no room; out: (2) what they got.
extern "C" void workers_run(const WatchCall* watch, int which, int* out) {
  Workers<int> workers;
  workers.run(2, 2, *watch, [&](int& own, std::atomic<int>& next, Watch&, int index, int) {
    if (index == which) throw std::bad_alloc();
    own = ++next;
    out[index] = own;
  });
}
}  // namespace native
"""


@pytest.fixture
def watch_call(registry):
    """What C++ knows of :class:`WatchCall`, beside nothing else."""
    interface._structures[WatchCall.__name__] = WATCH_CALL
    return WatchCall


def test_full_memory_is_an_error_of_python(registry, watch_call, tmp_path):
    (tmp_path / "full.h").write_text(FULL)
    interface.Header(str(tmp_path / "module.py"), "full.h", "Large large(int64_t count)")
    library = loaded(tmp_path)
    made = interface.made(library.large_new(1 << 10))
    assert library.large_free(made) is None
    with pytest.raises(MemoryError, match="no room"):
        interface.made(library.large_new(1 << 55))
    for which in range(3):
        with pytest.raises(MemoryError):
            library.parts_run(which)
    library.parts_run(3)
    out, watch = (ctypes.c_int * 2)(), watch_call(pause=1)
    for which in range(2):
        with pytest.raises(MemoryError):
            library.workers_run(ctypes.byref(watch), which, out)
        assert out[1 - which] == 1
    library.workers_run(ctypes.byref(watch), -1, out)
    assert sorted(out) == [1, 2]
