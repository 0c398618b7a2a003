"""On a GPU every method decodes as fairseq does there, at each batch size and in each type."""

import copy
import random

import pytest
import torch
from fairseq import utils
from fairseq.sequence_generator import SequenceGenerator

from specdec_plugin.decoding.sampling import Settings
from specdec_plugin.methods.registry import method_of
from tests.conformance.test_methods import ROUNDED, WAYS, config
from tests.conformance.test_samples import RELAXED, options_of
from tests.gpu.conftest import DEVICE
from tests.support import draws, tiny
from tests.support import methods as ways
from tests.support.conformance import SETTINGS, model_of
from tests.support.methods import METHODS
from tests.support.naive import assert_same_but_for_ties
from tests.support.nbest import assert_same_lists

SIZES = [1, 8, 64]
#: How far a log-probability may be from fairseq's, which sums in another order: by type.
APART = {torch.float32: 1e-4, torch.float16: 0.05, torch.bfloat16: 0.3}
if DEVICE == "cpu":  # where half precision is not decoded with
    APART = {torch.float32: APART[torch.float32]}
DRAWING = [
    way for way in METHODS if way not in RELAXED and "sampling" in method_of(config(way)).honours
]


def placed(way, setting, device, dtype=torch.float32):
    """A model of its own there."""
    return copy.deepcopy(model_of(way, setting)).to(device, dtype)


def batch(size, words, device):
    choose = random.Random(size)
    sample = tiny.sample([choose.randint(0, 20) for _ in range(size)], size, words)
    return utils.move_to_cuda(sample) if device.type == "cuda" else sample


def on_cpu(lists):
    """Hypotheses on the CPU in float32."""
    return [[_on_cpu(hypothesis) for hypothesis in found] for found in lists]


def _on_cpu(hypothesis):
    scores = {name: hypothesis[name] for name in ("score", "positional_scores")}
    scores = {name: torch.as_tensor(each).cpu().float() for name, each in scores.items()}
    return {"tokens": hypothesis["tokens"].cpu(), **scores}


def fairseqs(model, sample, beams, setting, device):
    """What fairseq's search finds there."""
    search = SequenceGenerator(
        [model],
        model.decoder.dictionary,
        beams,
        len_penalty=setting.lenpen,
        max_len_b=setting.max_len,
        min_len=setting.min_len,
    ).to(device)
    return on_cpu(search.generate([model], sample))


@pytest.mark.parametrize("dtype", APART, ids=str)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def test_exact_acceptance_is_fairseqs_search(way, size, setting, dtype, device):
    model = placed(way, setting, device, dtype)
    ours = ways.generator(way, model, None, setting.options())
    sample = batch(size, setting.words, device)
    expected = [rows[0] for rows in fairseqs(model, sample, 1, setting, device)]
    found = [rows[0] for rows in on_cpu(ours.generate([model], sample))]
    plain = model_of(way, setting)
    apart = max(APART[dtype], ROUNDED.get(way, 0))
    on_host = utils.move_to_cpu(sample)
    assert_same_but_for_ties(
        plain, on_host, found, expected, apart, APART[dtype], **setting.limits()
    )


@pytest.mark.parametrize("beams", [2, 5])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("size", SIZES)
def test_lists_are_fairseqs(size, setting, beams, device):
    model = placed("beam", setting, device)
    ours = ways.generator("beam", model, None, {"beam": beams, **setting.options()})
    sample = batch(size, setting.words, device)
    found = on_cpu(ours.generate([model], sample))
    assert_same_lists(found, fairseqs(model, sample, beams, setting, device))


@pytest.mark.parametrize("way", DRAWING)
def test_samples_are_those_of_the_cpu(way, device):
    """The noise of a position is the same number wherever it is added."""
    wanted = Settings(seed=5, samples=4, temperature=0.7)
    model = placed(way, SETTINGS["plain"], device)
    sample = batch(8, SETTINGS["plain"].words, device)
    made = ways.generator(way, model, None, options_of(wanted, max_len_b=14, min_len=2))
    found = made.generate([model], sample)
    plain = model_of(way, SETTINGS["plain"])
    expected = draws.reference(
        [plain],
        plain.decoder.dictionary,
        utils.move_to_cpu(sample),
        wanted,
        max_len_b=14,
        min_len=2,
    )
    for mine, theirs in zip(found, map(draws.best_first, expected), strict=True):
        drawn = [[each["tokens"].tolist() for each in some] for some in (mine, theirs)]
        assert drawn[0] == drawn[1]
