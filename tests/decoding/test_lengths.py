"""Scores by length."""

import pytest
import torch

from specdec_plugin.decoding.lengths import Lengths


@pytest.mark.parametrize("penalty", [0, 1, 0.6, -2, 1.0])
def test_scores_are_divided_by_a_power_of_the_length(penalty):
    found = Lengths(len_penalty=penalty).score(torch.tensor(-6.0), 3)
    assert found.item() == pytest.approx(-6.0 / 3**penalty)
    assert Lengths(len_penalty=penalty, normalize=False).score(torch.tensor(-6.0), 3).item() == -6.0


@pytest.mark.parametrize("penalty", [-10, 10])
def test_powers_that_the_options_allow_are_numbers(penalty):
    """In float32, of more tokens than most models have positions for."""
    found = Lengths(len_penalty=penalty).score(torch.tensor([-60.0, -61.0]), 4096)
    assert found.isfinite().all() and found[0] > found[1]
