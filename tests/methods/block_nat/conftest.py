"""Where the kernels of a chain head run."""

import pytest

from specdec_plugin.methods.block_nat import chain_cuda
from tests.support.kernels import device_of_kernels


@pytest.fixture(scope="module")
def device():
    """Where the kernels run."""
    return device_of_kernels()


@pytest.fixture
def supported(monkeypatch):
    """As if every device were one of CUDA."""
    monkeypatch.setattr(chain_cuda, "supports", lambda weight: True)
