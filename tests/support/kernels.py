"""Where the kernels of Triton run in tests."""

import importlib
import os

import pytest
import torch

#: Modules that ask whether kernels run where a weight is.
ASKING = [
    "specdec_plugin.engine.fused.embedding",
    "specdec_plugin.engine.fused.flow",
    "specdec_plugin.engine.fused.projection",
    "specdec_plugin.engine.fused.source",
    "specdec_plugin.decoding.judge_cuda",
]


def device_of_kernels():
    """A GPU, or the CPU where TRITON_INTERPRET=1 asks for Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here; TRITON_INTERPRET=1 runs this test without")
    return torch.device("cuda")


def run_kernels(monkeypatch):
    """The same device, on which models run them: an interpreter takes tensors on the CPU."""
    found = device_of_kernels()
    if found.type == "cpu":
        for name in ASKING:
            monkeypatch.setattr(importlib.import_module(name), "supports", lambda weight: True)
    else:
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
    return found
