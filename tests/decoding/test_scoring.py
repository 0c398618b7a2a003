"""Scores of given targets: those of fairseq's scorer, whoever computes them."""

from itertools import pairwise

import pytest
import torch
from fairseq.sequence_scorer import SequenceScorer
from fairseq.token_generation_constraints import pack_constraints
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding import scoring
from specdec_plugin.decoding.scoring import ReferenceScorer, ScoringStatistics, slices
from specdec_plugin.engine import GraphBackend, NativeBackend, TorchBackend, native
from specdec_plugin.methods.build import build_scorer
from tests.support import tiny
from tests.support.architectures import build_model
from tests.support.search import MODELS, SYMBOLS

BACKENDS = [TorchBackend(), GraphBackend()] + (
    [NativeBackend()] if native.library() is not None else []
)
PAD, EOS = SYMBOLS.pad(), SYMBOLS.eos()


def with_targets(lengths, seed, left=False, bos=EOS):
    """fairseq's batch of pairs of these (source, target) lengths; words are drawn."""
    sample = tiny.sample([source for source, _ in lengths], seed)
    generator = torch.Generator().manual_seed(seed + 1)
    width = max(target for _, target in lengths) + 1
    targets, fed = (torch.full((len(lengths), width), PAD) for _ in range(2))
    for row, (_, length) in enumerate(lengths):
        words = torch.randint(4, 16, (length,), generator=generator)
        place = slice(width - length - 1, width) if left else slice(0, length + 1)
        targets[row, place] = torch.cat([words, torch.tensor([EOS])])
        fed[row, place] = torch.cat([torch.tensor([bos]), words])
    sample["target"], sample["net_input"]["prev_output_tokens"] = targets, fed
    return sample


def scorer(models, backend=None):
    return build_scorer(tiny.task(SYMBOLS), models, SequenceScorer(SYMBOLS), backend)


def check(found, expected):
    for (one,), (other,) in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        assert torch.equal(one["tokens"], other["tokens"])
        assert torch.allclose(one["positional_scores"], other["positional_scores"], atol=1e-4)
        assert float(one["score"]) == pytest.approx(float(other["score"]), abs=1e-4)


@settings(max_examples=80)
@given(
    lengths=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 9)), min_size=1, max_size=12),
    ensemble=st.integers(1, 2),
    left=st.booleans(),
    bos=st.sampled_from([EOS, 7]),
    backend=st.sampled_from(BACKENDS),
    seed=st.integers(0, 10**6),
)
def test_scores_are_those_of_fairseqs_scorer(lengths, ensemble, left, bos, backend, seed):
    models, sample = MODELS[:ensemble], with_targets(lengths, seed, left, bos)
    ours = scorer(models, backend)
    ours.fairseqs = None  # so that nothing else can have scored them
    # Of targets that are padded on the left, fairseq returns the scores of the padding.
    padded_right = with_targets(lengths, seed, False, bos)
    expected = SequenceScorer(SYMBOLS).generate(models, padded_right)
    check(ours.generate(models, sample), expected)


class TestFairseqsOwn:
    """What cannot be forced is scored by fairseq."""

    def unusual(self, name):
        sample = with_targets([(3, 4), (2, 2)], 5)
        target, fed = sample["target"], sample["net_input"]["prev_output_tokens"]
        if name == "an end within":
            target[0, 1] = fed[0, 2] = EOS
        elif name == "no end":
            target[0, 4] = 9
        elif name == "other symbols are fed":
            fed[0, 2] = fed[0, 2] - 3 if fed[0, 2] > 8 else fed[0, 2] + 3
        elif name == "two beginnings":
            fed[1, 0] = 8
        elif name == "an end alone":
            target[0] = fed[0] = torch.tensor([EOS, EOS, EOS, EOS, EOS])
        elif name == "a word without an end":
            target[1], fed[1] = (torch.tensor([each, PAD, PAD, PAD, PAD]) for each in (9, EOS))
        elif name == "more is fed":
            padding = torch.full((2, 1), PAD)
            sample["net_input"]["prev_output_tokens"] = torch.cat([fed, padding], 1)
        return sample

    @pytest.mark.parametrize(
        "name",
        ["an end within", "no end", "other symbols are fed", "two beginnings", "an end alone"]
        + ["a word without an end", "more is fed"],
    )
    def test_unusual_targets(self, name, monkeypatch):
        sample, ours = self.unusual(name), scorer(MODELS[:1])
        monkeypatch.setattr(ours, "generator", Unused(ours.generator))
        expected = SequenceScorer(SYMBOLS).generate(MODELS[:1], sample)
        found = ours.generate(MODELS[:1], sample)
        for (one,), (other,) in zip(found, expected, strict=True):
            assert torch.equal(one["tokens"], other["tokens"])
            assert torch.equal(one["positional_scores"], other["positional_scores"])

    def test_targets_shorter_than_dynamic_convolutions(self):
        """Of a short input, fairseq normalises a part of the filters only."""
        torch.manual_seed(0)
        kernels = {"decoder_conv_type": "dynamic", "decoder_kernel_size_list": [3, 9]}
        models = [build_model("lightconv", **kernels)]
        symbols = models[0].decoder.dictionary
        theirs = SequenceScorer(symbols)
        for length in (3, 12):
            sample = with_targets([(7, length), (3, 2)], 5)
            expected = theirs.generate(models, sample)
            ours = build_scorer(tiny.task(symbols), models, SequenceScorer(symbols))
            check(ours.generate(models, sample), expected)
            target = sample.pop("target")  # as from Python
            check(ours.generate(models, sample, target), expected)

    def test_targets_too_short_for_one_model_of_several(self):
        torch.manual_seed(0)
        kernels = {"decoder_conv_type": "dynamic", "decoder_kernel_size_list": [9, 9]}
        models = [build_model("transformer"), build_model("lightconv", **kernels)]
        symbols = models[0].decoder.dictionary
        sample = with_targets([(7, 3), (3, 2)], 5)
        ours = build_scorer(tiny.task(symbols), models, SequenceScorer(symbols))
        check(ours.generate(models, sample), SequenceScorer(symbols).generate(models, sample))

    def test_data_of_which_a_part_is_scored(self):
        sample, ours = with_targets([(3, 4), (2, 2)], 5), scorer(MODELS[:1])
        sample["start_indices"] = [1, 0]
        expected = SequenceScorer(SYMBOLS).generate(MODELS[:1], sample)
        check(ours.generate(MODELS[:1], sample), expected)

    def test_targets_longer_than_the_model(self, monkeypatch):
        """fairseq tells the limit, or computes further positions."""
        sample, ours = with_targets([(3, 64)], 1), scorer(MODELS[:1])
        monkeypatch.setattr(ours, "generator", Unused(ours.generator))
        ((found,),) = ours.generate(MODELS[:1], sample)
        assert len(found["tokens"]) == 65


class Unused:
    """A generator that may not generate."""

    def __init__(self, generator):
        self.pad, self.lengths, self.models = generator.pad, generator.lengths, generator.models


def test_a_target_as_long_as_the_model_takes():
    sample = with_targets([(3, 63), (2, 1)], 2)
    ours = scorer(MODELS[:1])
    ours.fairseqs = None
    check(ours.generate(MODELS[:1], sample), SequenceScorer(SYMBOLS).generate(MODELS[:1], sample))


def test_targets_may_come_as_prefixes():
    sample = with_targets([(3, 4), (2, 2), (1, 0)], 5, bos=7)
    expected = SequenceScorer(SYMBOLS).generate(MODELS[:1], sample)
    target = sample.pop("target")
    check(scorer(MODELS[:1]).generate(MODELS[:1], sample, target, bos_token=7), expected)


def test_prefixes_do_not_replace_the_targets_of_a_batch():
    sample = with_targets([(3, 4), (2, 2)], 5)
    expected = SequenceScorer(SYMBOLS).generate(MODELS[:1], sample)
    check(scorer(MODELS[:1]).generate(MODELS[:1], sample, sample["target"][:, :2]), expected)


def test_weights_that_change_between_batches():
    models, sample = [tiny.model(4, symbols=SYMBOLS)], with_targets([(3, 4), (2, 2)], 5)
    ours = scorer(models)
    ours.fairseqs = None
    for _ in range(2):
        expected = SequenceScorer(SYMBOLS).generate(models, sample)
        check(ours.generate(models, sample), expected)
        with torch.no_grad():
            for weight in models[0].parameters():
                weight.add_(0.3)


def test_a_batch_is_let_go_when_it_is_scored():
    ours = scorer(MODELS[:1])
    ours.generate(MODELS[:1], with_targets([(3, 4), (2, 2)], 5))
    assert ours.generator.loop.step.verifier.states == []


def test_phrases_are_not_read():
    sample = with_targets([(3, 4), (2, 2)], 5)
    expected = SequenceScorer(SYMBOLS).generate(MODELS[:1], sample)
    sample["constraints"] = pack_constraints([[torch.tensor([7])], []])
    check(scorer(MODELS[:1]).generate(MODELS[:1], sample), expected)


@given(
    lengths=st.lists(st.integers(1, 9), max_size=30),
    most=st.integers(1, 40),
)
def test_slices_hold_all_rows_in_order(lengths, most):
    found = [*slices(lengths, most)]
    assert [row for part in found for row in part] == [*range(len(lengths))]
    for part in found:
        assert len(part) == 1 or len(part) * max(lengths[row] for row in part) <= most
    for part, after in pairwise(found):  # each takes what fits
        grown = [*part, after[0]]
        assert len(grown) * max(lengths[row] for row in grown) > most


@pytest.mark.parametrize(
    "arch, more",
    [
        ("lstm", {}),
        ("fconv", {}),
        ("lightconv", {"decoder_conv_type": "lightweight"}),
        ("transformer", {}),
    ],
)
def test_other_architectures_are_scored_in_slices(arch, more, monkeypatch):
    """Their encoders have outputs of other forms."""
    torch.manual_seed(0)
    models = [build_model(arch, **more)]
    symbols = models[0].decoder.dictionary
    monkeypatch.setattr(scoring, "MOST_SCORES", 40 * len(symbols))
    ours = build_scorer(tiny.task(symbols), models, SequenceScorer(symbols), TorchBackend())
    ours.fairseqs = None
    for lengths in ([(6, 9)] * 12, [(9 - row // 2, 8 + row % 3) for row in range(12)]):
        sample = with_targets(lengths, 4)
        check(ours.generate(models, sample), SequenceScorer(symbols).generate(models, sample))


@pytest.mark.parametrize("most", [1, 7, 40])
def test_slices_change_no_score(most, monkeypatch):
    monkeypatch.setattr(scoring, "MOST_POSITIONS", most)
    monkeypatch.setattr(scoring, "MOST_SCORES", most * len(SYMBOLS))
    sample = with_targets([(row % 7, row % 9) for row in range(20)], 3)
    for models in (MODELS[:1], MODELS[:2]):
        ours = scorer(models)
        ours.fairseqs = None
        check(ours.generate(models, sample), SequenceScorer(SYMBOLS).generate(models, sample))


def test_no_option_of_a_search_counts():
    """A short limit of one batch is not that of the next one."""
    ours = scorer(MODELS[:1])
    for length in (2, 30, 5):
        sample = with_targets([(3, length)], length)
        check(
            ours.generate(MODELS[:1], sample), SequenceScorer(SYMBOLS).generate(MODELS[:1], sample)
        )


def test_the_summary_counts_targets():
    ours = scorer(MODELS[:1])
    ours.generate(MODELS[:1], with_targets([(3, 4), (2, 2)], 5))
    statistics = ours.generator.statistics
    assert isinstance(ours, ReferenceScorer) and isinstance(statistics, ScoringStatistics)
    assert (statistics.batches, statistics.sentences) == (1, 2)
    first, times = statistics.lines()
    assert first == "2 targets, 8 tokens" and times.startswith("time ")
