"""Drafts of a rounded copy of the verifier: losslessness, and that the copy is a copy."""

import math
from argparse import Namespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import NativeBackend, TorchBackend, build_engine
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods.registry import config_class
from specdec_plugin.methods.self_draft.drafter import (
    BLOCK_SIZE,
    INT4_BLOCK_SIZE,
    RELAXED_BLOCK_SIZE,
    SelfDrafter,
)
from tests.support import tiny
from tests.support.architectures import build_model
from tests.support.search import MODELS, assert_same, reference, self_drafting

DecodingConfig = config_class()


def generator(models, block_size, dtype, rule=None, **lengths):
    return self_drafting(
        models, lambda verifier: SelfDrafter(verifier, block_size, dtype), rule, **lengths
    )


def first_of(found):
    return [row[0] for row in found]


@settings(max_examples=60)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    models=st.sampled_from([[0], [1], [2], [0, 1]]),
    block_size=st.integers(1, 20),
    dtype=st.sampled_from([torch.float32, torch.bfloat16, torch.int8, torch.int4]),
    min_len=st.integers(0, 3),
    max_len=st.integers(3, 40),
    prefix_size=st.integers(0, 3),
    seed=st.integers(0, 10**6),
)
def test_lossless(sources, models, block_size, dtype, min_len, max_len, prefix_size, seed):
    chosen, sample = [MODELS[index] for index in models], tiny.sample(sources, seed)
    lengths = {"min_len": min_len, "max_len_b": max_len}
    prefix = None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(4, 16, (len(sources), prefix_size))
    expected = reference(chosen, sample, prefix, **lengths)
    found = generator(chosen, block_size, dtype, **lengths).generate(chosen, sample, prefix)
    assert_same(first_of(found), expected)


@pytest.mark.usefixtures("threads_again")
@pytest.mark.parametrize("sources", [[5], [3, 6, 1, 4]])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_copy_that_is_not_rounded_is_never_wrong(sources, threads):
    torch.set_num_threads(threads)
    sample, ours = tiny.sample(sources, 5), generator(MODELS[:1], 6, torch.float32)
    found = first_of(ours.generate(MODELS[:1], sample))
    statistics = ours.statistics
    assert statistics.draft_lengths == statistics.kept_lengths
    for row in found:
        assert row["steps"] == math.ceil(len(row["tokens"]) / 7)


def test_drafts_end_with_the_sentence_and_with_the_limit():
    sample = tiny.sample([3, 6, 1, 4], 5)
    ours = generator(MODELS[:1], 60, torch.float32, max_len_b=20)
    for row in first_of(ours.generate(MODELS[:1], sample)):
        drafts = [step["tokens"].tolist() for step in row["history"][::2]]
        assert all(2 not in draft[:-1] for draft in drafts)
        assert sum(map(len, drafts)) <= 20


def test_relaxed_acceptance_is_that_of_the_rule():
    """What is kept is the verifier's best or among its β best and near enough."""
    rule, sample = TopBeta(3, 1.5), tiny.sample([6], 8)
    ours = generator(MODELS[:1], 9, torch.int4, rule, max_len_b=30)
    (row,) = first_of(ours.generate(MODELS[:1], sample))
    model, net_input = MODELS[0], sample["net_input"]
    encoded = model.encoder.forward_torchscript(net_input)
    fed = torch.cat([torch.tensor([2]), row["tokens"][:-1]]).unsqueeze(0)
    with torch.no_grad():
        lprobs = model.decoder(fed, encoder_out=encoded)[0][0].log_softmax(-1)
    lprobs[:, 1] = -math.inf
    lprobs[0, 2] = -math.inf
    for place, token in enumerate(row["tokens"].tolist()):
        own = lprobs[place, token]
        assert (lprobs[place] > own + 1e-5).sum() < 3 and lprobs[place].max() - own < 1.5 + 1e-5


@pytest.mark.parametrize("seed", range(4))
def test_a_large_vocabulary_is_screened_where_others_than_the_best_count(seed):
    """8-bit scores choose the candidates; the choice among them is as without them."""
    symbols = tiny.dictionary(3000)
    model, sample = tiny.model(seed, symbols=symbols), tiny.sample([5, 3], seed)
    both = []
    for verifying in (TorchBackend(), NativeBackend()):
        statistics = Statistics()
        verifier = Verifier([build_engine(model)], statistics)
        step = VerifiedStep(verifier, TopBeta(5, 3.0), verifying)
        loop = DecodingLoop(SelfDrafter(verifier, 6, torch.int4), step, statistics)
        ours = ParallelGenerator([model], symbols, loop, statistics, Lengths(max_len_b=25))
        both.append((first_of(ours.generate([model], sample)), statistics))
    (expected, counted), (found, counts) = both
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["tokens"].tolist() == theirs["tokens"].tolist()
        apart = (mine["positional_scores"] - theirs["positional_scores"]).abs()
        assert 0 < float(apart.max()) < 0.005
    assert counts.kept_lengths == counted.kept_lengths
    assert counts.accepted_tokens > 1.5


def test_new_weights_are_copied_again():
    model, sample = tiny.model(7), tiny.sample([4, 2], 1)
    ours = generator([model], 5, torch.float32, max_len_b=20)
    ours.generate([model], sample)
    with torch.no_grad():
        for weight in model.decoder.parameters():
            weight.copy_(weight + 0.3 * torch.randn_like(weight))
    ours.statistics.reset()
    found = first_of(ours.generate([model], sample))
    assert_same(found, reference([model], sample, max_len_b=20))
    assert ours.statistics.draft_lengths == ours.statistics.kept_lengths


class TestFlags:
    """``--decoding specdec`` without ``--drafter-path``."""

    def built(self, models, backend=None, **flags):
        task = tiny.task()
        task.cfg = DecodingConfig(decoding="specdec", **flags)
        options = Namespace(beam=1, max_len_a=0, max_len_b=12)
        return build.build_generator(task, models, options, backend=backend)

    @pytest.mark.parametrize("beta, longest", [(1, INT4_BLOCK_SIZE), (4, RELAXED_BLOCK_SIZE)])
    def test_four_bits_unless_another_type_is_named(self, beta, longest):
        drafter = self.built(MODELS[:1], top_beta=beta).loop.drafter
        assert isinstance(drafter, SelfDrafter) and drafter.dtype == torch.int4
        assert drafter.lengths[-1] == longest

    @pytest.mark.parametrize("beta, longest", [(1, BLOCK_SIZE), (4, RELAXED_BLOCK_SIZE)])
    @pytest.mark.parametrize("name", ["int8", "bfloat16"])
    def test_other_types_have_longer_drafts(self, beta, longest, name):
        drafter = self.built(MODELS[:1], top_beta=beta, drafter_dtype=name).loop.drafter
        assert drafter.dtype == getattr(torch, name) and drafter.lengths[-1] == longest

    @pytest.mark.parametrize("named, dtype", [(None, torch.int8), ("int4", torch.int4)])
    def test_a_search_drafts_with_eight_bits(self, named, dtype):
        task = tiny.task()
        task.cfg = DecodingConfig(decoding="specdec", drafter_dtype=named)
        search = build.build_generator(task, MODELS[:1], Namespace(beam=2, max_len_b=12)).loop
        assert search._ahead.engine.weight_type == dtype

    def test_the_copy_reads_the_verifiers_source(self):
        loop = self.built(MODELS[:1]).loop
        assert loop.drafter.copy._source_in is None
        assert loop.drafter._verifier.decoder._source_in is not None

    def test_on_a_cpu_for_the_last_row_alone(self):
        sample, ours = tiny.sample([2, 6, 3], 4), self.built(MODELS[:1], block_size=3)
        found = first_of(ours.generate(MODELS[:1], sample))
        assert_same(found, reference(MODELS[:1], sample, max_len_b=12))
        assert set(ours.statistics.draft_lengths) <= {0, 1, 2, 3}

    @pytest.mark.parametrize(
        "flags, words",
        [
            ({"draft_confidence": 0.2}, "--draft-confidence 0.2 .* add --drafter-path"),
            ({"block_size": -1}, "--block-size -1"),
            ({"drafter_dtype": "float16"}, "float32, bfloat16, int8 or int4"),
        ],
    )
    def test_refused(self, flags, words):
        with pytest.raises(PluginError, match=words):
            self.built(MODELS[:1], **flags)

    @pytest.mark.parametrize("arch", ["lstm", "fconv"])
    def test_other_architectures_need_a_drafter(self, arch):
        with pytest.raises(PluginError, match="Add --drafter-path"):
            self.built([build_model(arch)])

    def test_without_kernels_a_drafter_is_needed(self):
        with pytest.raises(PluginError, match=r"C\+\+ compiler.*Add --drafter-path"):
            self.built(MODELS[:1], TorchBackend())
