"""Token repetition against counts done by hand."""

import pytest

from specdec_plugin.lab.bench.repetition import repetition_percent


@pytest.mark.parametrize(
    "hypotheses, percent",
    [
        ([[4, 5, 5, 6]], 25),
        ([[4, 4, 4, 4]], 75),
        ([[4, 5], [5, 4]], 0),  # from one hypothesis to the next nothing is repeated
        ([[4, 4], [5, 6, 7, 8, 9, 10, 11, 12]], 10),
        ([[]], 0),
        ([], 0),
    ],
)
def test_share_of_tokens_equal_to_the_one_before(hypotheses, percent):
    assert repetition_percent(hypotheses) == pytest.approx(percent)
