"""Where memory is full, kernels end with an error of Python, and not Python itself."""

import ctypes
import gc
import os

import pytest
import torch

from specdec_plugin.decoding.watch import WatchCall
from specdec_plugin.engine import native
from specdec_plugin.engine.linear import NativeLinear
from specdec_plugin.engine.native import interface
from specdec_plugin.engine.native_layers import NativeLayers
from tests.support import tiny
from tests.support.compiled import needs_kernels

from ..support.command_lines import run_cli
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


DECODING = """
import resource
import torch
from tests.support import methods as ways, tiny

def used():
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[0]) * resource.getpagesize()

def tokens(sample):
    return [row[0]["tokens"].tolist() for row in ours.generate([model], sample)]

torch.set_num_threads({threads})
model = tiny.model(1, symbols=ways.SYMBOLS, encoder_embed_dim=256, decoder_embed_dim=256)
ours = ways.generator("{method}", model)
small, large = tiny.sample([4, 6], 1), tiny.sample([60] * 400, 2)
wanted, told = tokens(small), []
for room in (4, 8, 16, 24, 32, 48, 64, 96, 128, 192):
    resource.setrlimit(resource.RLIMIT_AS, (used() + (room << 20), -1))
    try:
        tokens(large)
    except (MemoryError, RuntimeError) as error:
        told.append(str(error))
    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    assert tokens(small) == wanted
assert any("native kernel" in each for each in told), told
"""


@needs_kernels
@pytest.mark.skipif(
    os.environ.get("SPECDEC_SANITIZE", "0") not in ("0", "delays"),
    reason="sanitizers take addresses without end",
)
@pytest.mark.parametrize("method, threads", [("greedy", 1), ("greedy", 2), ("beam", 1)])
def test_decoding_continues_after_full_memory(method, threads):
    """Such as by a server, which decodes the sentences of a batch one by one then."""
    run_cli(["python", "-c", DECODING.format(method=method, threads=threads)])


@needs_kernels
def test_maps_of_a_layer_that_is_not_packed_whole_are_freed(monkeypatch):
    library, made, freed = native.library(), [], []
    pack, free = NativeLinear._pack, library.linear_free

    def packed(self, *arguments):
        if len(made) == 4:
            raise MemoryError
        made.append(pack(self, *arguments))
        return made[-1]

    def noted(handle):
        freed.append(handle)
        free(handle)

    monkeypatch.setattr(NativeLinear, "_pack", packed)
    monkeypatch.setattr(library, "linear_free", noted)
    with pytest.raises(MemoryError):
        NativeLayers(list(tiny.model().decoder.layers), None, torch.float32)
    gc.collect()
    assert len(made) == 4 and sorted(freed) == sorted(made)
