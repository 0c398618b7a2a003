"""Where the tests of this folder run: on a GPU, or where SPECDEC_TEST_DEVICE names a device."""

import os

import pytest
import torch

#: What is asked for; None: a GPU.
DEVICE = os.environ.get("SPECDEC_TEST_DEVICE")


@pytest.fixture(scope="session")
def device():
    """A GPU, with float32 products that are float32's."""
    if DEVICE is None and not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU here; SPECDEC_TEST_DEVICE=cpu runs these tests without")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    return torch.device(DEVICE or "cuda")
