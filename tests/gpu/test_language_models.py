"""On a GPU, a language model's scores are added there, as on the CPU."""

import copy

import pytest
from fairseq import utils

from tests.gpu.test_identity import on_cpu
from tests.support import language_models, tiny
from tests.support.nbest import assert_fairseqs_lists, ours
from tests.support.search import MODELS


@pytest.mark.parametrize("kind", ["transformer", "lstm"])
def test_lists_are_fairseqs(kind, device):
    sample, beside = tiny.sample([4, 9, 2], 3), language_models.model(kind)
    given = dict(max_len_b=14, lm_weight=0.4)
    there, too = (copy.deepcopy(each).to(device) for each in (MODELS[0], beside))
    placed = utils.move_to_cuda(sample) if device.type == "cuda" else sample
    found = on_cpu(ours([there], placed, 4, **given, lm_model=too))
    assert_fairseqs_lists(found, MODELS[:1], sample, 4, **given, lm_model=beside)
