"""Forms of a batch that fairseq's search takes, too."""

import pytest
from fairseq.search import LengthConstrainedBeamSearch
from fairseq.sequence_generator import SequenceGenerator

from tests.support import methods as ways
from tests.support import tiny

SAMPLE = tiny.sample([5, 3, 6], 2)


def tokens(found):
    return [row[0]["tokens"].tolist() for row in found]


@pytest.mark.parametrize("way", ways.METHODS)
def test_lengths_of_the_sources_may_be_left_out(way, backend):
    if way in ("self-draft", "relaxed") and not ways.can_draft_for_itself(backend):
        return
    model = ways.verifier(way)
    ours = ways.generator(way, model, backend)
    expected = tokens(ours.generate([model], SAMPLE))
    bare = {"net_input": {"src_tokens": SAMPLE["net_input"]["src_tokens"]}}
    assert tokens(ours.generate([model], bare)) == expected


def test_a_match_of_their_length_is_as_fairseq_s():
    """It counts no end of a sentence, where it counts by itself."""
    model, options = ways.verifier("beam"), {"match_source_len": True}
    bare = {"net_input": {"src_tokens": SAMPLE["net_input"]["src_tokens"]}}
    search = LengthConstrainedBeamSearch(ways.SYMBOLS, 1, 0, 1, 0)  # as fairseq's tasks make it
    fairseq_s = SequenceGenerator(
        [model], ways.SYMBOLS, beam_size=2, search_strategy=search, **options
    )
    ours = ways.generator("beam", model, options={"beam": 2, **options})
    assert tokens(ours.generate([model], bare)) == tokens(fairseq_s.generate([model], bare))
