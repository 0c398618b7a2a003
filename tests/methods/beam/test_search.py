"""Beam search against fairseq's, hypothesis for hypothesis."""

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specdec_plugin.engine import GraphBackend, NativeBackend, TorchBackend
from specdec_plugin.errors import PluginError
from tests.support import tiny
from tests.support.nbest import assert_fairseqs_lists, assert_same_lists, ours, reference
from tests.support.search import MODELS, SYMBOLS

BACKENDS = [NativeBackend(), TorchBackend(), GraphBackend()]
BACKEND_NAMES = ["native", "torch", "graphs"]

rules = st.fixed_dictionaries(
    {
        "max_len_a": st.sampled_from([0, 0.5, 1.3]),
        "max_len_b": st.integers(2, 14),
        "min_len": st.integers(0, 2),
        "unk_penalty": st.sampled_from([0.0, 1.5, -2.0]),
        "len_penalty": st.sampled_from([0.6, 1.0, 1.4]),
        "normalize_scores": st.booleans(),
        "no_repeat_ngram_size": st.sampled_from([0, 0, 1, 2, 3]),
        "temperature": st.sampled_from([1.0, 1.0, 0.7]),
    }
)
lengths = st.lists(st.integers(1, 9), min_size=1, max_size=8)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
@given(st.integers(0, 2), lengths, st.integers(0, 99), st.integers(1, 7), rules, st.integers(1, 2))
@settings(max_examples=60)
def test_lists_are_fairseqs(backend, first, lengths, seed, beams, options, count):
    """Any options, batches, numbers of beams and ensembles."""
    models = [MODELS[(first + each) % len(MODELS)] for each in range(count)]
    sample = tiny.sample(lengths, seed)
    found = ours(models, sample, beams, backend=backend, **options)
    assert_fairseqs_lists(found, models, sample, beams, **options)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
@pytest.mark.parametrize("beams", [1, 2, 5])
def test_many_more_symbols_than_candidates(beams, backend):
    """The kernels compare those of a few parts of the vocabulary, where the best ones are."""
    symbols = tiny.dictionary(1000)
    model, sample = tiny.model(2, symbols=symbols), tiny.sample([5, 8, 2], 3, words=1000)
    options = dict(max_len_b=12, symbols=symbols)
    found = ours([model], sample, beams, backend=backend, **options)
    assert_fairseqs_lists(found, [model], sample, beams, **options)


def test_a_tie_within_the_search():
    """Two beams differ by 2.5e-6 of -52 at the 24th step; the list is that of float64."""
    options = dict(max_len_a=1.3, max_len_b=13, min_len=0, unk_penalty=1.5, len_penalty=0.6)
    options.update(normalize_scores=False, no_repeat_ngram_size=2)
    sample = tiny.sample([7, 8], 68)
    found = ours(MODELS[1:2], sample, 7, backend=NativeBackend(), **options)
    assert_fairseqs_lists(found, MODELS[1:2], sample, 7, **options)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
@given(lengths, st.integers(0, 99), st.integers(1, 6), st.integers(0, 3), st.data())
@settings(max_examples=40)
def test_forced_prefixes(backend, lengths, seed, beams, min_len, data):
    """Rows have prefixes of different lengths; one may end its sentence."""
    sample = tiny.sample(lengths, seed)
    width = data.draw(st.integers(1, 4))
    rows = []
    for _ in lengths:
        line = data.draw(st.lists(st.integers(4, 15), max_size=width))
        # fairseq fails where an end comes first: one beam ends there, and the others never.
        if 0 < len(line) < width and data.draw(st.booleans()):
            line = [*line, SYMBOLS.eos()]
        rows.append([*line, *[SYMBOLS.pad()] * (width - len(line))])
    prefix = torch.tensor(rows)
    options = dict(max_len_b=data.draw(st.integers(max(width, min_len), 12)), min_len=min_len)
    found = ours(MODELS[:1], sample, beams, prefix, backend, **options)
    assert_fairseqs_lists(found, MODELS[:1], sample, beams, prefix, **options)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
@given(lengths, st.integers(0, 99), st.integers(1, 6))
@example([1, 1, 4, 9, 4], 29, 4)  # prefixes of -5.969526349 and -5.969526659 compete for a beam
@settings(max_examples=30)
def test_outputs_as_long_as_their_sources(backend, lengths, seed, beams):
    sample, options = tiny.sample(lengths, seed), {"match_source_len": True}
    found = ours(MODELS[:1], sample, beams, backend=backend, **options)
    assert_fairseqs_lists(found, MODELS[:1], sample, beams, **options)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
@pytest.mark.parametrize("beams", [8, 15])
def test_nearly_as_many_beams_as_symbols(beams, backend):
    """Fewer candidates than 2 B: beams without a continuation are ignored."""
    for seed in range(6):
        sample = tiny.sample([3, 5], seed)
        expected = reference(MODELS[:1], sample, beams, max_len_b=6)
        found = ours(MODELS[:1], sample, beams, backend=backend, max_len_b=6)
        assert_same_lists(found, expected)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
def test_longer_than_the_first_room_of_the_cache(backend):
    model = tiny.model(3, max_target_positions=400)
    sample = tiny.sample([5, 2, 4], 1)
    options = dict(max_len_b=300, min_len=280)
    expected = reference([model], sample, 3, **options)
    assert_same_lists(ours([model], sample, 3, backend=backend, **options), expected)


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
def test_sentences_alone_and_together(backend):
    """A sentence has the same list in any batch."""
    lengths = [4, 9, 1, 6]
    together = ours(MODELS[:1], tiny.sample(lengths, 5), 4, backend=backend)
    tokens = tiny.sample(lengths, 5)["net_input"]["src_tokens"]
    for row, length in enumerate(lengths):
        alone = tokens[row : row + 1, -length - 1 :]
        net_input = {"src_tokens": alone, "src_lengths": torch.tensor([length + 1])}
        found = ours(MODELS[:1], {"net_input": net_input}, 4, backend=backend)
        assert_same_lists(found, [together[row]])


@pytest.mark.parametrize("backend", BACKENDS, ids=BACKEND_NAMES)
def test_no_hypothesis_can_end(backend):
    """fairseq fails with an assertion."""
    model = tiny.model(1, share_all_embeddings=False)
    with torch.no_grad():
        model.decoder.output_projection.weight[SYMBOLS.eos()] = 3e38  # its scores overflow
    with pytest.raises(PluginError, match="can end within the length limit"):
        ours([model], tiny.sample([3], 0), 2, max_len_b=3, backend=backend)
