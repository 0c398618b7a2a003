"""data_scripts/profile_gpu.py: what a trace tells, by launches."""

from typing import Any, Dict, Sequence

import profile_gpu
import pytest

from specdec_plugin.errors import PluginError
from tests.support.fifty import MODELS


def events(*launches: Sequence[str], category: str = "kernel") -> Sequence[Dict[str, Any]]:
    """A trace in which each kernel takes 2 us, and 1 us passes between two of them."""
    names = [(name, number) for number, launch in enumerate(launches, 40) for name in launch]
    return [
        {
            "cat": category, "name": name, "ts": 1000.0 + 3 * place, "dur": 2.0,
            "args": {"correlation": number},
        }
        for place, (name, number) in enumerate(names)
    ]  # fmt: skip


def test_graphs_are_told_once() -> None:
    graph = ["linear", "attend", "linear"]
    trace = events(graph, ["copy"], graph, ["linear"])
    host = {"cat": "cpu_op", "name": "aten::add", "ts": 0.0, "dur": 9.0, "args": {}}
    lines = profile_gpu.told(profile_gpu.work_of([host, *reversed(trace)]))
    assert lines == [
        "== launch 1, at 0.0 us: 3 kernels, 8.0 us",
        "    0.00    2.00 linear",
        "    3.00    2.00 attend",
        "    6.00    2.00 linear",
        "== launch 2, at 9.0 us: 1 kernel, 2.0 us",
        "    0.00    2.00 copy",
        "== launch 3, at 12.0 us: 3 kernels, 8.0 us, like launch 1",
        "== launch 4, at 21.0 us: 1 kernel, 2.0 us",
        "    0.00    2.00 linear",
    ]


def test_without_a_gpu_it_is_told() -> None:
    """A profile of a CPU is made, and has no kernels."""
    flags = ["--line", "The file is closed.", "--device", "cpu", "--warm-up", "1"]
    with pytest.raises(PluginError, match=r"Nothing ran on a GPU. Give --device cuda"):
        profile_gpu.main([str(MODELS), *flags, "--decoding", "specdec", "--draft-rows", "0"])
