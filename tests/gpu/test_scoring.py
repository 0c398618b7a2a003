"""On a GPU references have the scores that fairseq gives them on the CPU."""

import copy

import pytest
from fairseq import utils
from fairseq.sequence_scorer import SequenceScorer

from specdec_plugin.methods.build import build_scorer
from tests.decoding.test_scoring import SYMBOLS, with_targets
from tests.support import tiny
from tests.support.search import MODELS


@pytest.mark.parametrize("models", [1, 2])
@pytest.mark.parametrize("size", [1, 40])
def test_scores_are_fairseqs(size, models, device):
    sample = with_targets([(row % 9, row % 13) for row in range(size)], size)
    expected = SequenceScorer(SYMBOLS).generate(MODELS[:models], sample)
    placed = [copy.deepcopy(model).to(device) for model in MODELS[:models]]
    ours = build_scorer(tiny.task(SYMBOLS), placed, SequenceScorer(SYMBOLS))
    ours.fairseqs = None  # so that nothing else can have scored them
    given = utils.move_to_cuda(sample) if device.type == "cuda" else sample
    for (found,), (wanted,) in zip(ours.generate(placed, given), expected, strict=True):
        assert found["tokens"].tolist() == wanted["tokens"].tolist()
        scores = wanted["positional_scores"].tolist()
        assert found["positional_scores"].tolist() == pytest.approx(scores, abs=1e-4)
