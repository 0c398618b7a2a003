"""Ensembles in the kernels: models of any shapes, beside a language model too."""

import copy

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding import queue
from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.guard import Guard
from specdec_plugin.decoding.language_model import LanguageModel
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.native_verification import NativeVerification, unsupported
from specdec_plugin.decoding.sampling import Settings
from specdec_plugin.decoding.schedule import Schedule
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import CachedDecoder, NativeBackend, TorchBackend, build_engine
from specdec_plugin.methods.beam import native as beam
from specdec_plugin.methods.beam.native import NativeBeamSearch, StepDrafter
from specdec_plugin.methods.self_draft.drafter import SelfDrafter
from tests.decoding.test_sampling import generator as sampling
from tests.support import draws, language_models, nbest, search, tiny
from tests.support.compiled import needs_kernels
from tests.support.hostile import HostileDrafter
from tests.support.search import SYMBOLS

pytestmark = [needs_kernels, pytest.mark.usefixtures("threads_again")]


def shaped(seed, dim, heads, layers, **given):
    """A model of a shape of its own."""
    sizes = dict.fromkeys(("encoder_embed_dim", "decoder_embed_dim"), dim)
    both = dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), heads)
    return tiny.model(seed, decoder_layers=layers, **sizes, **both, **given)


#: Of other widths, heads, depths, norms and positions.
SHAPES = [
    shaped(1, 16, 2, 2),
    shaped(2, 24, 3, 1, encoder_normalize_before=True, decoder_normalize_before=True),
    shaped(3, 32, 2, 3, decoder_learned_pos=True, encoder_learned_pos=True),
]
BESIDE = language_models.model("transformer", decoder_embed_dim=24, decoder_layers=1)
LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=9)
models = st.permutations(SHAPES).flatmap(lambda order: st.sampled_from([order, order[:2]]))


def verifier(models, backend=None, beside=None):
    engines = [build_engine(each, backend=backend) for each in models]
    weighed = None if beside is None else LanguageModel(beside, 0.3, backend)
    return Verifier(engines, Statistics(), language_model=weighed)


def few_rows(monkeypatch):
    """Two workers whose rows, fewer than sentences, are taken again and again."""
    torch.set_num_threads(2)
    for module in (queue, beam):
        monkeypatch.setattr(module, "rows_at_once", lambda engine, beams=1: 3 * beams)
    monkeypatch.setattr(queue, "LEAST", 1)


@pytest.mark.parametrize("beside", [None, BESIDE], ids=["alone", "beside a language model"])
@given(models, LENGTHS, st.integers(0, 99), st.integers(1, 5), st.fixed_dictionaries(nbest.RULES))
@settings(max_examples=15, deadline=None)
def test_lists_are_fairseqs(beside, models, lengths, seed, beams, options):
    sample = tiny.sample(lengths, seed)
    given = dict(options, temperature=0.8)
    if beside is not None:
        given |= {"lm_model": beside, "lm_weight": 0.3}
    with pytest.MonkeyPatch.context() as patch:
        few_rows(patch)
        found = nbest.ours(models, sample, beams, **given)
    nbest.assert_fairseqs_lists(found, models, sample, beams, **given)


@given(models, LENGTHS, st.integers(0, 99), search.settings_of_search)
@settings(max_examples=15, deadline=None)
def test_a_queue_finds_what_fairseq_finds(models, lengths, seed, options):
    sample = tiny.sample(lengths, seed)
    asked, ran = verifier(models), []
    asked.temperature = options["temperature"]
    lengths = {name: value for name, value in options.items() if name != "temperature"}
    loop = DecodingLoop(None, VerifiedStep(asked, TopBeta()), asked.statistics)
    limits = Lengths(max_positions=64, **lengths)
    generator = ParallelGenerator(models, SYMBOLS, loop, asked.statistics, limits)
    with pytest.MonkeyPatch.context() as patch:
        few_rows(patch)
        run = queue.Queue.run
        patch.setattr(queue.Queue, "run", lambda *given: ran.append(given) or run(*given))
        found = [row[0] for row in generator.generate(models, sample)]
    assert len(ran) == 1
    search.assert_same(found, search.reference(models, sample, **options))


@given(models, LENGTHS, st.integers(0, 99), st.floats(0, 1), st.sampled_from([1.0, 0.7]))
@settings(max_examples=15, deadline=None)
def test_drafts_change_nothing(models, lengths, seed, honesty, temperature):
    """Rows leave the batch at different iterations, and each model's cache follows."""
    sample, options = tiny.sample(lengths, seed), {"max_len_b": 12, "temperature": temperature}
    expected = search.reference(models, sample, **options)
    drafter = HostileDrafter([each["tokens"].tolist() for each in expected], honesty, 5, seed)
    found, _ = search.ours(models, sample, drafter, TopBeta(), **options)
    search.assert_same(found, expected)


@given(models, st.integers(1, 9), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_many_drafts_in_one_call(models, length, seed):
    """The first model drafts, until a cache has no more room: 64 slots, and then more."""
    sample, options = tiny.sample([length], seed), {"max_len_b": 62, "min_len": 62}
    generator = search.self_drafting(models, lambda verifier: SelfDrafter(verifier, 4), **options)
    found = [row[0] for row in generator.generate(models, sample)]
    search.assert_same(found, search.reference(models, sample, **options))


@needs_kernels
def test_a_batch_of_which_a_part_is_drafted_and_the_rest_is_a_queue(monkeypatch):
    """The queue reads the encoder's output of each model for the sentences that are left."""
    parts, ensemble, statistics = [], search.MODELS[:2], Statistics()

    def two_at_first(self, size, left):
        parts.append(left)
        self.measures = False
        return 2 if left == size else 0

    monkeypatch.setattr(Schedule, "next", two_at_first)
    verifier = Verifier([build_engine(each) for each in ensemble], statistics)
    step = VerifiedStep(verifier, TopBeta())
    loop = DecodingLoop(SelfDrafter(verifier, 4), step, statistics, gate=Guard())
    ours = ParallelGenerator(ensemble, SYMBOLS, loop, statistics, Lengths(max_len_b=12))
    sample = tiny.sample([5, 3, 6, 2, 7, 4], 3)
    found = [row[0] for row in ours.generate(ensemble, sample)]
    search.assert_same(found, search.reference(ensemble, sample, max_len_b=12))
    assert parts == [6, 4]


@given(models, LENGTHS, st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_samples_are_those_of_the_mean(models, lengths, seed):
    sample, wanted = tiny.sample(lengths, seed), Settings(seed=seed, samples=2, temperature=0.9)
    found = sampling(models, wanted, max_len_b=10).generate(models, sample)
    expected = draws.reference(models, SYMBOLS, sample, wanted, max_len_b=10)
    for mine, theirs in zip(found, expected, strict=True):
        search.assert_same(mine, draws.best_first(theirs))


@given(models, st.integers(1, 9), st.integers(0, 99), st.sampled_from([None, BESIDE]))
@settings(max_examples=15, deadline=None)
def test_steps_that_the_first_model_drafts(models, length, seed, beside):
    sample, given = tiny.sample([length], seed), {"max_len_b": 14, "temperature": 0.8}
    if beside is not None:
        given |= {"lm_model": beside, "lm_weight": 0.3}
    ahead = StepDrafter(CachedDecoder(models[0].decoder, torch.int8), 4)
    found = nbest.ours(models, sample, 3, ahead=ahead, **given)
    nbest.assert_fairseqs_lists(found, models, sample, 3, **given)


@pytest.mark.parametrize("drafted", [False, True], ids=["queue", "drafts"])
def test_weights_of_a_later_model_that_change(drafted):
    """A generator that lives on packs them again, and reads them in its next batch."""
    models, sample = [copy.deepcopy(each) for each in SHAPES], tiny.sample([5, 3, 7], 2)
    asked = verifier(models)
    drafter = SelfDrafter(asked, 3) if drafted else None
    loop = DecodingLoop(drafter, VerifiedStep(asked, TopBeta()), asked.statistics, drafted)
    limits = Lengths(max_len_b=12, max_positions=64)
    generator = ParallelGenerator(models, SYMBOLS, loop, asked.statistics, limits)
    generator.generate(models, sample)
    with torch.no_grad():
        for parameter in models[2].parameters():
            parameter.mul_(1.3)
    found = [row[0] for row in generator.generate(models, sample)]
    fairseqs = SequenceGenerator(models, SYMBOLS, beam_size=1, max_len_b=12)
    search.assert_same(found, [row[0] for row in fairseqs.generate(models, sample)])


def test_the_kernels_do_it():
    """Nothing above is left to PyTorch's operators."""
    batch = nbest_batch()
    for beside in (None, BESIDE):
        assert NativeBeamSearch.unsupported(verifier(SHAPES, beside=beside), batch, 4) is None
    assert NativeVerification.unsupported(verifier(SHAPES)) is None
    assert NativeVerification(verifier(SHAPES), TopBeta()).ready


def nbest_batch():
    """What a search asks of a batch beside the verifier."""
    seen = []
    unsupported_by = NativeBeamSearch.unsupported

    def noted(verifier, batch, *given):
        seen.append(batch)
        return unsupported_by(verifier, batch, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeBeamSearch, "unsupported", staticmethod(noted))
        nbest.ours(SHAPES[:1], tiny.sample([3]), 2, max_len_b=4)
    return seen[0]


def test_what_they_leave():
    other = tiny.model(4, symbols=tiny.dictionary(20))
    lstm = language_models.model("lstm")
    larger = language_models.model("transformer", symbols=tiny.dictionary(20))
    by_torch = [build_engine(SHAPES[0], backend=NativeBackend()),
                build_engine(SHAPES[1], backend=TorchBackend())]  # fmt: skip
    mixed, batch = Verifier(by_torch, Statistics()), nbest_batch()
    assert unsupported(mixed) is not None
    assert "numbers of symbols" in (unsupported(verifier([SHAPES[0], other])) or "")
    for beside, why in ((lstm, "do not run"), (larger, "number of symbols")):
        asked = verifier(SHAPES[:1], beside=beside)
        assert why in (NativeBeamSearch.unsupported(asked, batch, 2) or "")
    assert "--path names 3 models" in (NativeVerification.certifies(verifier(SHAPES)) or "")
