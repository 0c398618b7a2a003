import pytest

from specdec_plugin.engine.native import interface


@pytest.fixture(autouse=True)
def same_random_numbers(seeded: None) -> None:
    """Every test of the engine draws the same random numbers in each run."""


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is declared for the kernels but what a test declares."""
    for name in ("_headers", "_structures", "_constants"):
        monkeypatch.setattr(interface, name, {})
    monkeypatch.setattr(interface, "_enums", set())
