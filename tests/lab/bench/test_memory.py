"""Bytes of models that share storages, and growth while something is done."""

import os

import pytest
import torch
from torch import nn

from specdec_plugin.fairseq_compat.held_in_half import held_in_half, in_half
from specdec_plugin.lab.bench.memory import Memory, growth, in_use, peak_growth, weight_bytes

CPU = torch.device("cpu")
MB = 10**6


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(10, 5, bias=False), nn.Linear(10, 5, bias=False)
        self.register_buffer("table", torch.zeros(8, dtype=torch.float16))


def test_shared_weights_count_once():
    pair = Pair()
    assert weight_bytes(pair) == 2 * 200 + 16
    pair.two.weight = pair.one.weight
    assert weight_bytes([pair, {"again": pair}]) == 200 + 16
    other = Pair()
    other.one.weight = pair.one.weight
    assert weight_bytes(other, besides=[pair]) == 200 + 16
    assert weight_bytes(pair.one.forward) == 200  # through a bound method
    assert weight_bytes([]) == 0


def test_sum():
    memory = Memory(verifier=3 * MB, drafter=2 * MB, packed=MB, decoding=MB // 2)
    assert memory.megabytes() == {
        "verifier": 3, "drafter": 2, "packed": 1, "decoding": 0.5, "peak": 6.5
    }  # fmt: skip


@pytest.mark.skipif(in_use(CPU) is None, reason="the C library does not tell")
def test_growth_is_what_stays():
    def build():
        torch.ones(4 * MB)
        return torch.ones(2 * MB)

    built, kept = growth(build, CPU)
    assert built.numel() == 2 * MB and kept == pytest.approx(8 * MB, rel=0.05)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="no /proc")
def test_peak_growth_sees_what_was_freed_again():
    seen = peak_growth(lambda: torch.ones(8 * MB), CPU)
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("peaks cannot be reset here")
    assert 0.9 * 32 * MB < seen < 1.3 * 32 * MB


def test_weights_that_are_held_in_half_take_half():
    model = nn.Sequential(nn.Linear(30, 50, bias=False), nn.Linear(50, 30))
    half = torch.randn(50, 30).half()
    model[0].weight = held_in_half(half)
    assert weight_bytes(model) == 2 * half.numel() + 4 * (half.numel() + 30)
    assert in_half(model[0].weight) is half
