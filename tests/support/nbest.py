"""fairseq's beam search, ours, and the comparison of their n-best lists."""

import copy
from functools import partial

import torch
from fairseq.search import LengthConstrainedBeamSearch, LexicallyConstrainedBeamSearch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import strategies as st

from specdec_plugin.decoding.generator import ParallelGenerator
from specdec_plugin.decoding.language_model import LanguageModel
from specdec_plugin.decoding.lengths import Lengths
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import build_engine
from specdec_plugin.fairseq_compat.phrase_search import PhraseSearch
from specdec_plugin.methods.beam.search import BeamSearch

from .search import SYMBOLS

#: The lengths of a batch's sources, and by name fairseq's options of a beam search.
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)
RULES = {
    "max_len_b": st.integers(6, 14),
    "min_len": st.integers(0, 2),
    "unk_penalty": st.sampled_from([0.0, 1.5]),
    "len_penalty": st.sampled_from([0.6, 1.0]),
    "no_repeat_ngram_size": st.sampled_from([0, 0, 3]),
}
#: Two totals that differ by less may come in either order.
TIE = 1e-4


def reference(
    models, sample, beams, prefix=None, symbols=SYMBOLS, strategy=None, phrases=None, **options
):
    """fairseq's n-best lists; n-grams are blocked in earnest.

    Args:
        strategy: makes one of fairseq's search strategies of a dictionary; None: plain beam search.
        phrases: packed, of each sentence; None: none.
    """
    strategy = None if strategy is None else strategy(symbols)
    if options.get("match_source_len"):
        strategy = LengthConstrainedBeamSearch(symbols, 1, 0, 1, 0)
    generator = SequenceGenerator(
        models, symbols, beam_size=beams, search_strategy=strategy, **options
    )
    block_ngrams(generator)
    return generator.generate(models, sample, prefix_tokens=prefix, constraints=phrases)


def ours(
    models,
    sample,
    beams,
    prefix=None,
    backend=None,
    temperature=1.0,
    ahead=None,
    symbols=SYMBOLS,
    strategy=None,
    phrases=None,
    lm_model=None,
    lm_weight=1.0,
    **options,
):
    """Our n-best lists, by options of fairseq's generator.

    Args:
        ahead: searches ahead; None: nobody does.
        symbols: the dictionary of the models.
        strategy, phrases: as for :func:`reference`.
        lm_model, lm_weight: a language model beside the models, as fairseq's generator takes it.
    """
    names = {"len_penalty", "max_len_a", "max_len_b", "min_len", "unk_penalty"}
    names |= {"no_repeat_ngram_size", "match_source_len"}
    given = {name: value for name, value in options.items() if name in names}
    positions = min(model.max_decoder_positions() for model in models)
    lengths = Lengths(
        max_positions=positions, normalize=options.get("normalize_scores", True), **given
    )
    statistics = Statistics()
    verifier = Verifier([build_engine(each, backend=backend) for each in models], statistics)
    verifier.temperature = temperature
    if lm_model is not None:
        verifier.language_model = LanguageModel(lm_model, lm_weight, backend)
    if strategy is not None and strategy.func is LexicallyConstrainedBeamSearch:
        strategy = partial(PhraseSearch, **strategy.keywords)
    strategy = None if strategy is None else strategy(symbols)
    search = BeamSearch(verifier, statistics, lengths, beams, ahead, strategy=strategy)
    generator = ParallelGenerator(
        models, symbols, search, statistics, lengths, backend=backend, constrained=True
    )
    return generator.generate(models, sample, prefix_tokens=prefix, constraints=phrases)


def totals(hypotheses):
    """The sums of log-probabilities of hypotheses."""
    return [float(each["positional_scores"].sum()) for each in hypotheses]


def assert_same_lists(found, expected):
    """The same hypotheses in the same order, but for ties."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert len(mine) == len(theirs)
        for one, other in zip(mine, theirs, strict=True):
            close = abs(float(one["score"]) - float(other["score"])) < TIE
            assert close or float(one["score"]) == float(other["score"])  # both -inf
            if one["tokens"].tolist() != other["tokens"].tolist():
                # Another hypothesis of ours has the tokens, and its score is as good; or the two
                # compete for the last rank.
                same = [m for m in mine if m["tokens"].tolist() == other["tokens"].tolist()]
                assert same or other is theirs[-1]
                assert all(abs(float(m["score"]) - float(other["score"])) < TIE for m in same)
                continue
            assert torch.allclose(one["positional_scores"], other["positional_scores"], atol=TIE)


def assert_fairseqs_lists(found, models, sample, beams, prefix=None, **options):
    """:func:`assert_same_lists` with fairseq's, or with those of its search in float64.

    Where sums of log-probabilities differ by less than float32 tells apart, either hypothesis may
    stay in the beam, and all that follows differs.
    """
    try:
        assert_same_lists(found, reference(models, sample, beams, prefix, **options))
    except AssertionError:
        precise = [copy.deepcopy(model).double() for model in models]
        if "lm_model" in options:
            options["lm_model"] = copy.deepcopy(options["lm_model"]).double()
        assert_same_lists(found, reference(precise, sample, beams, prefix, **options))


def assert_lists_of_strategy(found, models, sample, beams, **options):
    """The same of a strategy, by which the scores of hypotheses that tie may be far apart.

    Each sentence has the list that fairseq finds, or finds with weights that differ by as little as
    float32 rounds away: a tie decides which candidates are compared by bank or by group.
    """
    different = _differences(found, reference(models, sample, beams, **options))
    precise = [copy.deepcopy(model).double() for model in models] if different else []
    for seed in range(6):
        if not different:
            return
        nearly = [_nearly(model, seed) for model in precise]
        different &= _differences(found, reference(nearly, sample, beams, **options))
    assert not different


def _differences(found, expected):
    """The sentences whose lists are not the same."""
    assert len(found) == len(expected)
    different = set()
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        try:
            assert_same_lists([mine], [theirs])
        except AssertionError:
            different.add(number)
    return different


@torch.no_grad()
def _nearly(model, seed):
    """A copy whose weights differ by what float32 rounds away."""
    copied, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    for weight in copied.parameters():
        noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        weight.mul_(1 + 3e-7 * noise)
    return copied


def block_ngrams(generator):
    """Let one of fairseq's generators keep ``--no-repeat-ngram-size`` without its CUDA extension.

    Its own code compares the padding behind the tokens, and blocks nothing.
    """
    block = getattr(generator, "repeat_ngram_blocker", None)
    if block is None or block.use_extension:
        return
    forward = block.forward

    def shortened(tokens, lprobs, bsz, beam_size, step):
        return forward(tokens[:, : step + 1], lprobs, bsz, beam_size, step)

    block.forward = shortened
