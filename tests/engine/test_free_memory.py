"""Freed memory goes back to the system, but not after every batch."""

import ctypes
import platform
import sys
from typing import List

import pytest
import torch

from specdec_plugin.engine.free_memory import HEAP, SECONDS, FreeMemory, glibc_trim
from specdec_plugin.engine.native_layers import NativeLayers
from tests.support import tiny
from tests.support.compiled import needs_kernels


def test_it_trims_once_in_some_seconds() -> None:
    now, calls = [0.0], list[int]()
    memory = FreeMemory(calls.append, lambda: now[0])
    for now[0] in (0.0, SECONDS / 2, SECONDS, SECONDS * 1.5, SECONDS * 2):
        memory.give_back()
    assert calls == [0, 0]
    memory.give_back(now=True)
    assert calls == [0, 0, 0]


def test_without_a_function_nothing_happens() -> None:
    FreeMemory(None).give_back(now=True)


def test_others_are_asked_to_free_theirs_before() -> None:
    calls = list[str]()
    memory = FreeMemory(lambda pad: calls.append("trim"), lambda: 0.0)

    def free() -> None:
        calls.append("free")

    memory.ask(free)
    memory.ask(free)
    memory.give_back()
    assert not calls
    memory.give_back(now=True)
    assert calls == ["free", "trim"]


@needs_kernels
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads what Linux tells")
def test_what_layers_were_computed_in_is_given_back() -> None:
    wide = {"encoder_ffn_embed_dim": 2048, "encoder_embed_dim": 16}
    encoder = tiny.model(**wide, share_all_embeddings=False).encoder
    layers = NativeLayers(list(encoder.layers), None, torch.float32)
    HEAP.give_back(now=True)
    before = resident()
    layers.encode(torch.randn(60, 200, 16), None)
    held = resident() - before
    HEAP.give_back(now=True)
    assert held > 80 and resident() - before < held / 4


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no trim")
def test_holes_in_the_heap_leave_the_process() -> None:
    libc, trim = ctypes.CDLL(None), glibc_trim()
    assert trim is not None
    libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    size, blocks = 60_000, list[int]()
    for _ in range(2_000):  # small enough for the heap
        blocks.append(libc.malloc(size))
        ctypes.memset(blocks[-1], 1, size)
    last = blocks.pop()
    for block in blocks:
        libc.free(block)
    before = resident()
    trim(0)
    libc.free(last)
    assert before - resident() > 50  # of 120


def resident() -> int:
    """MB of this process."""
    with open("/proc/self/status", encoding="ascii") as file:
        found: List[int] = [int(line.split()[1]) for line in file if line.startswith("VmRSS")]
    return found[0] // 1024
