"""Every method that draws samples × backend × cut: the samples of fairseq's search."""

import functools

import pytest

from specdec_plugin.decoding.sampling import Settings
from specdec_plugin.methods.registry import method_of
from tests.conformance.test_methods import NATIVE, config
from tests.support import draws, tiny
from tests.support import methods as ways
from tests.support.methods import METHODS, SYMBOLS

CUTS = {
    "all": {},
    "cool": {"temperature": 0.7},
    "top-k": {"top_k": 3},
    "top-p": {"top_p": 0.8, "temperature": 1.5},
}
LENGTHS = {"max_len_b": 14, "min_len": 2}
#: They accept tokens that were not drawn.
RELAXED = {"relaxed"}
WAYS = [
    way for way in METHODS if way not in RELAXED and "sampling" in method_of(config(way)).honours
]


def options_of(wanted, **more):
    """fairseq's generation options that ask for ``wanted``."""
    return {
        "sampling": True,
        "seed": wanted.seed,
        "beam": wanted.samples,
        "temperature": wanted.temperature,
        "sampling_topk": wanted.top_k or -1,
        "sampling_topp": wanted.top_p or -1.0,
        **more,
    }


@functools.cache
def fairseqs(model_of, cut):
    """The settings, a model and a batch, and fairseq's samples; do not change them."""
    wanted = Settings(seed=5, samples=4, **CUTS[cut])
    model, sample = ways.verifier(model_of), tiny.sample([5, 2, 7], 8)
    return wanted, model, sample, draws.reference([model], SYMBOLS, sample, wanted, **LENGTHS)


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("way", WAYS)
def test_samples_are_fairseqs(backend, way, cut):
    if way in NATIVE and not ways.can_draft_for_itself(backend):
        return  # it is refused; see test_methods.py
    model_of = way if way.endswith(" heads") else "greedy"  # those without heads share theirs
    wanted, model, sample, expected = fairseqs(model_of, cut)
    made = ways.generator(way, model, backend, options_of(wanted, **LENGTHS))
    found = made.generate([model], sample)
    assert len({tuple(each["tokens"].tolist()) for row in found for each in row}) > 8
    for mine, theirs in zip(found, map(draws.best_first, expected), strict=True):
        assert [each["tokens"].tolist() for each in mine] == [
            each["tokens"].tolist() for each in theirs
        ]
        for one, other in zip(mine, theirs, strict=True):
            assert abs(float(one["score"]) - float(other["score"])) < 1e-4


@pytest.mark.parametrize("cut", CUTS)
def test_a_copy_of_the_model_drafts_what_is_drawn(backend, cut):
    """The drafts of a self-draft are made with the noise that judges them."""
    if backend.unsupported() is not None:
        return
    wanted = Settings(seed=5, samples=4, **CUTS[cut])
    model, sample = ways.verifier("self-draft"), tiny.sample([5, 2, 7], 8)
    options = options_of(wanted, max_len_b=14)
    made = ways.generator("self-draft", model, backend, options, drafter_dtype="float32")
    made.generate([model], sample)
    assert made.statistics.iterations == made.statistics.sentences
