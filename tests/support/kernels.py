"""Where the kernels of Triton run in tests."""

import os

import pytest
import torch


def device_of_kernels():
    """A GPU, or the CPU where TRITON_INTERPRET=1 asks for Triton's interpreter."""
    pytest.importorskip("triton", reason="Triton is not installed")
    if os.environ.get("TRITON_INTERPRET") == "1":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU here; TRITON_INTERPRET=1 runs this test without")
    return torch.device("cuda")
