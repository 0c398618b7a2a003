"""When kernels are launched early. What the launches do needs a GPU: tests/gpu."""

import pytest
import torch

from specdec_plugin.engine import early_launch

GPU = torch.device("cuda", 7)  # None of this machine.
LATE, EARLY = {"early": False}, {"early": True, "launch_pdl": True}
options = early_launch.launch_options.__wrapped__


def test_nothing_is_launched_early_on_a_cpu():
    assert options(torch.device("cpu")) == LATE


@pytest.mark.parametrize(
    "capability, works, expected",
    [((9, 0), True, EARLY), ((12, 0), True, EARLY), ((8, 9), True, LATE), ((9, 0), False, LATE)],
)
def test_a_trial_decides(monkeypatch, capability, works, expected):
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(early_launch, "_works", lambda device: works)
    assert options(GPU) == expected


def test_other_makers_devices_look_alike(monkeypatch):
    """PyTorch calls those of AMD cuda, too."""
    monkeypatch.setattr(torch.version, "hip", "7.0")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    monkeypatch.setattr(early_launch, "_works", lambda device: True)
    assert options(GPU) == LATE


@pytest.mark.parametrize("error", [ImportError, RuntimeError, TypeError])
def test_an_error_is_no_crash(monkeypatch, error):
    """An older Triton, CUDA or driver."""

    def broken(device):
        raise error("no such launch")

    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    monkeypatch.setattr(early_launch, "_works", broken)
    assert options(GPU) == LATE
