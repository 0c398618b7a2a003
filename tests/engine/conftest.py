import pytest
import torch

from specdec_plugin.engine import native


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(1)


@pytest.fixture(autouse=True, params=["native", "plain"])
def operators(request, monkeypatch):
    """Everything twice: on the kernels of our own and on PyTorch's operators."""
    if request.param == "plain":
        monkeypatch.setattr(native, "library", lambda: None)
    else:
        assert native.library() is not None, "the tests need a C++ compiler"
    return request.param
