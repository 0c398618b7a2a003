"""Every method where learned positions end: no draft may ask for one behind the last."""

import functools

import pytest
from fairseq.sequence_generator import SequenceGenerator

from tests.conformance.test_methods import NATIVE, ROUNDED, WAYS
from tests.support import methods as ways
from tests.support import tiny
from tests.support.conformance import LENGTHS
from tests.support.naive import assert_same_but_for_ties

#: Fewer than a self-draft has tokens, and than fairseq's options let the output have.
POSITIONS = 12
OPTIONS = {"max_len_b": 30}
#: No cache holds such a decoder, which reads all tokens again.
UNCACHED = {"cross_self_attention": True}


@functools.cache
def model_of(way, uncached):
    """The verifier; do not change it."""
    shape = {"share_all_embeddings": False, "share_decoder_input_output_embed": False}
    shape |= {"decoder_learned_pos": True, "decoder_normalize_before": True}
    shape |= UNCACHED if uncached else {}
    return ways.verifier(way, 5, max_target_positions=POSITIONS, **shape)


def assert_fairseqs(way, model, backend):
    """Rows of many lengths, the longest of which are at the limit."""
    ours = ways.generator(way, model, backend, OPTIONS)
    search = SequenceGenerator([model], model.decoder.dictionary, 1, **OPTIONS)
    limits = {"min_len": 1, "max_len": POSITIONS - 1}
    for size, seed in [(8, 1), (1, 1), (8, 2)]:
        sample = tiny.sample(LENGTHS[size], seed)
        expected = [row[0] for row in search.generate([model], sample)]
        found = [row[0] for row in ours.generate([], sample)]
        lengths = {len(row["tokens"]) for row in expected}
        assert size == 1 or (len(lengths) > 1 and max(lengths) == POSITIONS)
        within = ROUNDED.get(way, 1e-4)
        assert_same_but_for_ties(model, sample, found, expected, within, **limits)


@pytest.mark.parametrize("way", WAYS)
def test_drafts_end_with_the_positions(way, backend):
    if way not in NATIVE or ways.can_draft_for_itself(backend):
        assert_fairseqs(way, model_of(way, uncached=False), backend)


@pytest.mark.parametrize("way", ["jacobi", "gs-jacobi", "lookup"])
def test_so_they_do_without_a_cache(way, backend):
    assert_fairseqs(way, model_of(way, uncached=True), backend)
