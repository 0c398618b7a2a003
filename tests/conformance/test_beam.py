"""``--decoding beam`` as the command line builds it: the n-best lists of fairseq's search."""

import pytest
from fairseq.sequence_generator import SequenceGenerator

from tests.support import methods as ways
from tests.support import tiny
from tests.support.conformance import LENGTHS, SETTINGS, model_of
from tests.support.nbest import assert_same_lists


@pytest.mark.parametrize("beams", [1, 2, 5])
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("size", LENGTHS)
def test_lists_are_fairseqs(size, setting, beams, backend):
    model = model_of("beam", setting)
    ours = ways.generator("beam", model, backend, {"beam": beams, **setting.options()})
    options = {"max_len_b": setting.max_len, "min_len": setting.min_len}
    search = SequenceGenerator(
        [model], model.decoder.dictionary, beams, len_penalty=setting.lenpen, **options
    )
    for seed in (1, 2):
        sample = tiny.sample(LENGTHS[size], seed, setting.words)
        found, expected = ours.generate([], sample), search.generate([model], sample)
        assert_same_lists(found, expected)
