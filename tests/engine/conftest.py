import pytest


@pytest.fixture(autouse=True)
def same_random_numbers(seeded: None) -> None:
    """Every test of the engine draws the same random numbers in each run."""
