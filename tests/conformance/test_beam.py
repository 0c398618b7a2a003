"""``--decoding beam`` as the command line builds it: the n-best lists of fairseq's search."""

import functools

import pytest
from fairseq.sequence_generator import SequenceGenerator

from tests.support import methods as ways
from tests.support import tiny
from tests.support.conformance import LENGTHS, SETTINGS, model_of
from tests.support.nbest import assert_same_lists


@functools.cache
def fairseqs(setting, beams, size, seed):
    """A batch, and the n-best lists of fairseq's search; do not change them."""
    model = model_of("beam", setting)
    sample = tiny.sample(LENGTHS[size], seed, setting.words)
    options = {"max_len_b": setting.max_len, "min_len": setting.min_len}
    search = SequenceGenerator(
        [model], model.decoder.dictionary, beams, len_penalty=setting.lenpen, **options
    )
    return sample, search.generate([model], sample)


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("size", LENGTHS)
def test_lists_are_fairseqs(size, setting, beams, backend):
    model = model_of("beam", setting)
    ours = ways.generator("beam", model, backend, {"beam": beams, **setting.options()})
    for seed in (1, 2):
        sample, expected = fairseqs(setting, beams, size, seed)
        assert_same_lists(ours.generate([], sample), expected)
