"""Forms of a batch that fairseq's search takes, too, and modes that a program may set."""

from unittest import mock

import pytest
import torch
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


def assert_nothing_changes(way, backend, block):
    """What is built and decoded in a block is what is decoded outside of it."""
    if way in ("self-draft", "relaxed") and not ways.can_draft_for_itself(backend):
        return
    model = ways.verifier(way)
    expected = ways.generator(way, model, backend).generate([model], SAMPLE)
    drafter = ways.drafter_for(way, model)
    with block(), mock.patch.object(ways, "drafter_for", lambda *names: drafter):
        found = ways.generator(way, model, backend).generate([model], SAMPLE)
    assert tokens(found) == tokens(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine[0]["positional_scores"].equal(theirs[0]["positional_scores"])


@pytest.mark.parametrize("way", ways.METHODS)
def test_mixed_precision_around_it_changes_nothing(way, backend):
    """A program that trains and decodes may do both within torch.autocast."""
    assert_nothing_changes(way, backend, lambda: torch.autocast("cpu", dtype=torch.bfloat16))


@pytest.mark.parametrize("way", ways.METHODS)
def test_the_default_device_changes_nothing(way, backend):
    """The kernels would read addresses of a GPU."""
    assert_nothing_changes(way, backend, lambda: torch.device("meta"))
