"""Scores by length."""

import pytest
import torch

from specdec_plugin.decoding.lengths import Lengths
from specdec_plugin.errors import PluginError


@pytest.mark.parametrize("penalty", [0, 1, 0.6, -2, 1.0])
def test_scores_are_divided_by_a_power_of_the_length(penalty):
    found = Lengths(len_penalty=penalty).score(torch.tensor(-6.0), 3)
    assert found.item() == pytest.approx(-6.0 / 3**penalty)
    assert Lengths(len_penalty=penalty, normalize=False).score(torch.tensor(-6.0), 3).item() == -6.0


@pytest.mark.parametrize("penalty", [1000, 1000.0])
def test_a_power_that_is_no_number_is_refused(penalty):
    with pytest.raises(PluginError, match=r"--lenpen 1000.* that of 7 is too large"):
        Lengths(len_penalty=penalty).score(torch.tensor(-6.0), 7)
