"""When kernels are launched early. What the launches do needs a GPU: tests/gpu."""

import ctypes
import importlib
import sys
import types

import pytest
import torch

from specdec_plugin.engine import early_launch

GPU = torch.device("cuda", 7)  # None of this machine.
LATE, EARLY = {"early": False}, {"early": True, "launch_pdl": True}
options = early_launch.launch_options.__wrapped__


@pytest.fixture
def hopper(monkeypatch):
    """A device that can launch kernels early, with a driver that can capture such launches."""
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(early_launch, "_driver_version", lambda: 12030)
    monkeypatch.setattr(early_launch, "_works", lambda device: True)
    return monkeypatch


def test_nothing_is_launched_early_on_a_cpu(hopper):
    assert options(torch.device("cpu")) == LATE


def test_a_trial_decides(hopper):
    assert options(GPU) == EARLY
    hopper.setattr(early_launch, "_works", lambda device: False)
    assert options(GPU) == LATE


@pytest.mark.parametrize("capability", [(8, 9), (12, 0)])
def test_older_devices_and_those_that_capture_none_are_not_tried(hopper, capability):
    hopper.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert options(GPU) == LATE


def test_older_drivers_are_not_tried(hopper):
    hopper.setattr(early_launch, "_driver_version", lambda: 12020)
    assert options(GPU) == LATE


def test_a_driver_is_asked(monkeypatch):
    """Through CUDA's own library: PyTorch does not tell its version."""
    asked = []

    class Library:
        def __init__(self, name):
            asked.append(name)

        def cuDriverGetVersion(self, version):  # noqa: N802
            version._obj.value = 13000
            return 0

    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert early_launch._driver_version() == 13000
    assert asked == ["libcuda.so.1"]


def test_no_driver_is_no_crash(hopper):
    def missing():
        raise OSError("libcuda.so.1: cannot open shared object file")

    hopper.setattr(early_launch, "_driver_version", missing)
    assert options(GPU) == LATE


def test_other_makers_devices_look_alike(hopper):
    """PyTorch calls those of AMD cuda, too."""
    hopper.setattr(torch.version, "hip", "7.0")
    assert options(GPU) == LATE


@pytest.mark.parametrize("error", [ImportError, RuntimeError, TypeError])
def test_an_error_is_no_crash(hopper, error):
    """An older Triton, CUDA or driver."""

    def broken(device):
        raise error("no such launch")

    hopper.setattr(early_launch, "_works", broken)
    assert options(GPU) == LATE


def test_kernels_compile_with_an_older_triton(monkeypatch):
    """Which knows no such launches, and looks at all names of a kernel."""
    pytest.importorskip("triton", reason="Triton is not installed")
    name = "specdec_plugin.engine.early_kernels"
    monkeypatch.setitem(sys.modules, "triton.language.extra.cuda", types.ModuleType("cuda"))
    monkeypatch.delitem(sys.modules, name, raising=False)
    found = importlib.import_module(name)
    monkeypatch.delitem(sys.modules, name)
    assert found.gdc_wait.fn.__module__ == name
