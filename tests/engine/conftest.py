import pytest


@pytest.fixture(autouse=True)
def on_both_backends(seeded: None, operators: str) -> None:
    """Every test of the engine runs on the native kernels and on PyTorch's operators."""
