"""A certified verifier: 8-bit scores rule symbols out, and the output is fairseq's."""

import math
from unittest import mock

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding import native_verification
from specdec_plugin.decoding.acceptance import Distance, MinBlock, TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.native_verification import NativeVerification
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import TorchBackend, build_engine
from specdec_plugin.methods.build import build_generator
from specdec_plugin.methods.registry import config_class
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.hostile import HostileDrafter

DecodingConfig = config_class()

WORDS = 300
SYMBOLS = tiny.dictionary(WORDS)
MODELS = [tiny.model(seed, symbols=SYMBOLS) for seed in range(3)]


def with_doubles(seed, apart):
    """A model each of whose words has three others that are nearly it."""
    model = tiny.model(seed, symbols=SYMBOLS)
    with torch.no_grad():
        weight = model.decoder.output_projection.weight
        for place in range(4, 4 + WORDS // 4):
            for double in range(1, 4):
                weight[place + double * (WORDS // 4)] = weight[place] * (1 + double * apart)
    return model


DOUBLES = [with_doubles(seed, 1e-3) for seed in range(3)]


#: Scores that are exact, and those of 8-bit weights for small models.
EXACT, APPROXIMATE = 1e-4, 2e-3


def decode(
    model,
    sample,
    drafter,
    rule=None,
    certified=True,
    prefix=None,
    temperature=1.0,
    approximate=False,
    symbols=SYMBOLS,
    **lengths,
):
    """Hypotheses, and what was counted."""
    statistics = Statistics()
    verifier = Verifier([build_engine(model)], statistics, temperature, certified, approximate)
    loop = DecodingLoop(drafter, VerifiedStep(verifier, rule or TopBeta()), statistics)
    options = Lengths(max_positions=model.max_decoder_positions(), **lengths)
    generator = ParallelGenerator([model], symbols, loop, statistics, options)
    found = generator.generate([model], sample, prefix_tokens=prefix)
    return [row[0] for row in found], statistics


def reference(model, sample, prefix=None, symbols=SYMBOLS, **options):
    """fairseq's hypotheses with beam 1."""
    generator = SequenceGenerator([model], symbols, beam_size=1, **options)
    return [row[0] for row in generator.generate([model], sample, prefix_tokens=prefix)]


def tokens_of(found):
    return [row["tokens"].tolist() for row in found]


@settings(max_examples=60)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    number=st.integers(0, 2),
    doubled=st.booleans(),
    min_len=st.integers(0, 4),
    max_len=st.integers(4, 14),
    unk_penalty=st.sampled_from([0.0, 0.0, 1.5]),
    temperature=st.sampled_from([1.0, 1.0, 0.7, 1.4]),
    prefix_size=st.integers(0, 2),
    honesty=st.sampled_from([0.0, 0.5, 0.9]),
    seed=st.integers(0, 10**6),
    approximate=st.booleans(),
    most=st.sampled_from([2, 1000]),
)
def test_the_output_is_fairseqs(
    sources, number, doubled, min_len, max_len, unk_penalty, temperature, prefix_size, honesty,
    seed, approximate, most,
):  # fmt: skip
    model, sample = (DOUBLES if doubled else MODELS)[number], tiny.sample(sources, seed, WORDS)
    prefix = None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(4, 4 + WORDS, (len(sources), prefix_size))
    lengths = {"min_len": min_len, "max_len_b": max_len, "unk_penalty": unk_penalty}
    lengths["temperature"] = temperature
    expected = reference(model, sample, prefix, **lengths)
    drafter = HostileDrafter(tokens_of(expected), honesty, 6, seed)
    with mock.patch.object(native_verification, "prefiltered", lambda weights, bits: most):
        found, _ = decode(model, sample, drafter, prefix=prefix, approximate=approximate, **lengths)
    assert tokens_of(found) == tokens_of(expected)
    assert_scores(found, expected, APPROXIMATE if approximate else EXACT)


def assert_scores(found, expected, apart):
    """Each position's log-probability is the expected one."""
    for mine, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(
            mine["positional_scores"], theirs["positional_scores"], atol=apart, rtol=0
        )


@pytest.mark.parametrize("seed", range(3))
def test_symbols_that_may_not_be_chosen_rule_out_no_other(seed):
    """Padding, and the end of a sentence that would be too short, have far greater scores."""
    model, sample = with_doubles(seed, 1e-3), tiny.sample([6, 3], seed, WORDS)
    with torch.no_grad():
        model.decoder.layers[-1].final_layer_norm.bias.add_(1.0)
        model.decoder.output_projection.weight[[SYMBOLS.pad(), SYMBOLS.eos()]] = 1.0
    lengths = {"min_len": 12, "max_len_b": 20}
    expected = reference(model, sample, **lengths)
    assert [len(tokens) for tokens in tokens_of(expected)] == [13, 13]
    found, _ = decode(model, sample, None, **lengths)
    assert tokens_of(found) == tokens_of(expected)
    assert_scores(found, expected, EXACT)


@needs_kernels
@pytest.mark.parametrize("rows", [1, 3])
def test_approximate_scores_of_a_larger_vocabulary(rows):
    """Likely symbols are scored exactly, and so is the mean of all.

    The weights of all symbols have much in common, and so have the errors of their rounded scores.
    Without the mean, scores would be off by 0.0005 on average.
    """
    symbols = tiny.dictionary(2000)
    model = tiny.model(1, symbols=symbols, encoder_embed_dim=64, decoder_embed_dim=64)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(1.5).add_(torch.linspace(-1, 1, 64))
    sample = tiny.sample([5] * rows, 2, 2000)
    lengths = {"min_len": 30, "max_len_b": 40}
    expected = reference(model, sample, symbols=symbols, **lengths)
    found, statistics = decode(model, sample, None, approximate=True, symbols=symbols, **lengths)
    assert tokens_of(found) == tokens_of(expected) and statistics.certified >= 30 * rows
    apart = [
        (mine["positional_scores"] - theirs["positional_scores"]).abs()
        for mine, theirs in zip(found, expected, strict=True)
    ]
    assert 0 < torch.cat(apart).mean() < 2e-4


@needs_kernels
@pytest.mark.parametrize("certified", [False, True])
def test_scores_that_nobody_reads_are_not_normalised(certified):
    """Where nothing is certified, all scores stay exact."""
    symbols, lengths = tiny.dictionary(2000), {"min_len": 30, "max_len_b": 40}
    model, sample = tiny.model(1, symbols=symbols), tiny.sample([5] * 20, 2, 2000)
    verifier = Verifier([build_engine(model)], Statistics(), certified=certified)
    loop = DecodingLoop(None, VerifiedStep(verifier, TopBeta()), verifier.statistics)
    options = Lengths(max_positions=model.max_decoder_positions(), **lengths)
    given = [model], symbols, loop, verifier.statistics, options
    generator = ParallelGenerator(*given, verifier=verifier)
    exact = [row[0] for row in generator.generate([model], sample)]
    generator.forgo_scores()
    found = [row[0] for row in generator.generate([model], sample)]
    assert tokens_of(found) == tokens_of(exact)
    scores = [torch.cat([each["positional_scores"] for each in some]) for some in (found, exact)]
    assert torch.equal(*scores) is not certified


@needs_kernels
@pytest.mark.parametrize("rows", [1, 3])
def test_scores_of_a_sentence_longer_than_what_waits_for_a_normaliser(rows, monkeypatch):
    sample = tiny.sample([5] * rows, 2, WORDS)
    lengths = {"min_len": 50, "max_len_b": 60}
    monkeypatch.setattr(native_verification, "prefiltered", lambda weights, bits: 8)
    found, statistics = decode(MODELS[0], sample, None, **lengths)
    assert statistics.certified >= 50 * rows
    assert_scores(found, reference(MODELS[0], sample, **lengths), EXACT)


@needs_kernels
def test_an_interrupted_batch_leaves_nothing_to_the_next():
    class Interrupted(HostileDrafter):
        def propose(self, rows):
            if rows.steps == 3:
                raise KeyboardInterrupt
            return super().propose(rows)

    sample = tiny.sample([6], 4, WORDS)
    lengths = {"min_len": 9, "max_len_b": 20}
    expected = reference(MODELS[0], sample, **lengths)
    verifier = Verifier([build_engine(MODELS[0])], Statistics(), 1.0, True)
    step = VerifiedStep(verifier, TopBeta())
    for kind in (Interrupted, HostileDrafter):
        drafter = kind(tokens_of(expected), 0.5, 2, 1)
        loop = DecodingLoop(drafter, step, verifier.statistics)
        options = Lengths(max_positions=MODELS[0].max_decoder_positions(), **lengths)
        generator = ParallelGenerator(MODELS[:1], SYMBOLS, loop, verifier.statistics, options)
        if kind is Interrupted:
            with pytest.raises(KeyboardInterrupt):
                generator.generate(MODELS[:1], sample)
    found = [row[0] for row in generator.generate(MODELS[:1], sample)]
    assert tokens_of(found) == tokens_of(expected)
    assert_scores(found, expected, EXACT)


@needs_kernels
def test_many_positions_at_once_are_scored_in_float32_at_once():
    sample = tiny.sample([6], 3, WORDS)
    truth = tokens_of(reference(MODELS[0], sample, max_len_b=30))
    drafter = HostileDrafter(truth, 1.0, 12, 1)
    _, statistics = decode(MODELS[0], sample, drafter, max_len_b=30)
    assert statistics.certified < len(truth[0])


def naive_count(model, state):
    """How many symbols might be the best, with all of it in float64."""
    weight, state = model.decoder.output_projection.weight.double(), state.double()

    def rounded(vectors):
        step = vectors.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
        return (vectors / step).round() * step

    near, near_state = rounded(weight), rounded(state)
    values = near @ near_state
    values[SYMBOLS.pad()] = -math.inf
    doubt = state.norm() * (weight - near).norm(dim=1).max()
    doubt = doubt + (state - near_state).norm() * near.norm(dim=1).max()
    assert float(((weight @ state) - near @ near_state).abs().max()) <= float(doubt)
    return int((values >= values.max() - 2 * doubt).sum())


@needs_kernels
@pytest.mark.parametrize("model", [MODELS[0], DOUBLES[1]])
def test_what_is_in_question_is_what_the_bound_leaves(model):
    sample = tiny.sample([6], 3, WORDS)
    (found,), statistics = decode(model, sample, None, max_len_b=30)
    tokens, net_input = found["tokens"], sample["net_input"]
    shifted = torch.cat([torch.tensor([SYMBOLS.eos()]), tokens[:-1]])
    with torch.no_grad():
        encoded = model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        states = model.decoder.extract_features(shifted.unsqueeze(0), encoder_out=encoded)[0][0]
        counts = [naive_count(model, state) for state in states]
    assert statistics.certified == len(tokens)
    # The kernels allow for what float32 loses, and so may ask for one more now and then.
    assert sum(counts) <= statistics.rescored <= sum(counts) * 1.02 + 1
    assert abs(statistics.certain - counts.count(1)) <= 1
    assert "certified projection" in "\n".join(statistics.lines())


@needs_kernels
def test_symbols_that_rounding_cannot_tell_apart_are_in_question():
    sample = tiny.sample([6, 2], 3, WORDS)
    plain = decode(MODELS[1], sample, None, max_len_b=20)[1]
    doubled = decode(DOUBLES[1], sample, None, max_len_b=20)[1]
    assert plain.certain > 0 and doubled.certain == 0
    assert doubled.rescored >= 4 * doubled.certified


@pytest.mark.parametrize("rule", ["distance", "least"])
def test_other_rules_are_certified_too(rule, monkeypatch):
    monkeypatch.setattr(native_verification, "prefiltered", lambda weights, bits: 1000)
    model, sample = DOUBLES[0], tiny.sample([5, 3], 9, WORDS)
    numbers = torch.arange(4.0 + WORDS)
    rules = {"distance": Distance(numbers, 2.0), "least": MinBlock(TopBeta(), 2, SYMBOLS.eos())}
    truth = tokens_of(reference(model, sample, max_len_b=20))
    found = [
        decode(model, sample, HostileDrafter(truth, 0.7, 4, 5), rules[rule], certified)[0]
        for certified in (False, True)
    ]
    assert tokens_of(found[0]) == tokens_of(found[1])
    assert_scores(*found, EXACT)


@pytest.mark.parametrize("approximate", [False, True])
@pytest.mark.parametrize("words", [WORDS, 5000])
def test_a_model_whose_scores_are_all_alike(words, approximate):
    symbols = tiny.dictionary(words)
    model, sample = tiny.model(0, symbols=symbols), tiny.sample([3], 1, words)
    with torch.no_grad():
        model.decoder.output_projection.weight.zero_()
    options = {"symbols": symbols, "max_len_b": 5}
    found, _ = decode(model, sample, None, approximate=approximate, **options)
    plain, _ = decode(model, sample, None, certified=False, **options)
    assert tokens_of(found) == tokens_of(plain)


@needs_kernels
def test_only_float32_is_certified():
    for dtype, certain in ((torch.float32, True), (torch.bfloat16, False)):
        verifier = Verifier([build_engine(MODELS[0], dtype)], Statistics())
        assert (NativeVerification.certifies(verifier) is None) is certain
    verifier = Verifier([build_engine(each) for each in MODELS[:2]], Statistics())
    assert NativeVerification.certifies(verifier) is not None


def test_where_it_has_no_effect_a_warning_says_so(caplog):
    task = tiny.task(SYMBOLS)
    task.cfg = DecodingConfig(decoding="greedy", certified_projection=True)
    arguments = type("Arguments", (), {"beam": 1, "max_len_b": 9})()
    sample = tiny.sample([4, 2], 1, WORDS)
    expected = tokens_of(reference(MODELS[0], sample, max_len_b=9))
    generator = build_generator(task, MODELS[:1], arguments, backend=TorchBackend("of a test"))
    assert tokens_of(row[0] for row in generator.generate(MODELS[:1], sample)) == expected
    assert "--certified-projection has no effect here, because of a test" in caplog.text
