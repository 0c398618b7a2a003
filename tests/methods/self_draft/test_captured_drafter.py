"""A GPU's self-draft, on a CPU, where nothing is captured: losslessness, and what is drafted."""

import math
from argparse import Namespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.operations import Work
from specdec_plugin.engine import GraphBackend
from specdec_plugin.errors import PluginError
from specdec_plugin.methods import build
from specdec_plugin.methods.registry import config_class
from specdec_plugin.methods.self_draft import captured_drafter
from specdec_plugin.methods.self_draft.captured_drafter import BLOCK_SIZE, SHORT, CapturedDrafter
from tests.support import tiny
from tests.support.search import MODELS, assert_same, reference, self_drafting

DecodingConfig = config_class()
TYPES = [torch.float32, torch.bfloat16, torch.float16]


class SomeIterations(FixedGate):
    """Lets the drafter draft in some iterations, given by a pattern."""

    def __init__(self, pattern):
        super().__init__()
        self._pattern, self._asked = pattern, 0

    def choose(self, rows, tokens, drafts=True):
        self._asked += 1
        return int(self._pattern[self._asked % len(self._pattern)])

    def ahead(self):
        return 0


def generator(models, block_size, dtype=torch.float32, gate=None, **lengths):
    def drafter(verifier):
        return CapturedDrafter(verifier, block_size, dtype)

    return self_drafting(models, drafter, gate=gate, backend=GraphBackend(), **lengths)


def first_of(found):
    return [row[0] for row in found]


@settings(max_examples=60)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    models=st.sampled_from([[0], [1], [2], [0, 1]]),
    block_size=st.integers(1, 20),
    dtype=st.sampled_from(TYPES),
    pattern=st.lists(st.booleans(), min_size=1, max_size=5),
    min_len=st.integers(0, 3),
    max_len=st.integers(3, 40),
    prefix_size=st.integers(0, 3),
    seed=st.integers(0, 10**6),
)
def test_lossless(sources, models, block_size, dtype, pattern, min_len, max_len, prefix_size, seed):
    chosen, sample = [MODELS[index] for index in models], tiny.sample(sources, seed)
    lengths = {"min_len": min_len, "max_len_b": max_len}
    prefix = None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(4, 16, (len(sources), prefix_size))
    expected = reference(chosen, sample, prefix, **lengths)
    ours = generator(chosen, block_size, dtype, SomeIterations(pattern), **lengths)
    assert_same(first_of(ours.generate(chosen, sample, prefix)), expected)


@pytest.mark.parametrize("sources", [[5], [3, 6, 1, 4]])
def test_a_copy_in_the_same_type_is_never_wrong(sources):
    """Where no rule is in the way, which the copy does not know."""
    sample, ours = tiny.sample(sources, 5), generator(MODELS[:1], 6, max_len_b=40, min_len=0)
    for row in first_of(ours.generate(MODELS[:1], sample)):
        assert row["steps"] == math.ceil(len(row["tokens"]) / 7)


@pytest.mark.parametrize("pattern", ["110", "10", "0010111"])
def test_so_it_is_where_others_choose_tokens_between(pattern):
    """Each draft that was made is right: the copy has read what it did not draft."""
    gate = SomeIterations([each == "1" for each in pattern])
    sample = tiny.sample([3, 6, 1, 4], 5)
    ours = generator(MODELS[:1], 4, gate=gate, max_len_b=40, min_len=0)
    ours.generate(MODELS[:1], sample)
    drafted, kept = ours.statistics.draft_lengths, ours.statistics.kept_lengths
    # Behind an end of sentence the copy drafts on, and nothing of it is kept.
    wrong = sum(drafted.values()) - drafted[0] - kept[4]
    assert kept[4] > 4 and wrong <= len(sample["id"])


def test_new_weights_are_copied_again():
    model, sample = tiny.model(7), tiny.sample([4, 2], 1)
    ours = generator([model], 5, max_len_b=20, min_len=0)
    ours.generate([model], sample)
    with torch.no_grad():
        for weight in model.decoder.parameters():
            weight.copy_(weight + 0.3 * torch.randn_like(weight))
    found = first_of(ours.generate([model], sample))
    assert_same(found, reference([model], sample, max_len_b=20, min_len=0))
    for row in found:
        assert row["steps"] == math.ceil(len(row["tokens"]) / 6)


class TestFlags:
    """``--decoding specdec`` without ``--drafter-path``, and ``--decoding auto``."""

    def built(self, **flags):
        task = tiny.task()
        task.cfg = DecodingConfig(**{"decoding": "specdec", **flags})
        options = Namespace(beam=1, max_len_a=0, max_len_b=12)
        return build.build_generator(task, MODELS[:1], options, backend=GraphBackend())

    def test_defaults(self):
        drafter = self.built().loop.drafter
        assert isinstance(drafter, CapturedDrafter) and drafter.copy.dtype == torch.float16
        assert drafter.lengths == (SHORT, BLOCK_SIZE)

    def test_named(self):
        drafter = self.built(block_size=5, drafter_dtype="bfloat16").loop.drafter
        assert drafter.copy.dtype == torch.bfloat16 and drafter.lengths == (5,)
        assert self.built(top_beta=3).loop.drafter.lengths == (BLOCK_SIZE,)

    @pytest.mark.parametrize("decoding", ["specdec", "auto"])
    def test_few_weights_promise_nothing(self, decoding, monkeypatch):
        """A GPU reads them in less time than it launches a step in."""
        loop = self.built(decoding=decoding).loop
        assert loop.drafter.promising == loop.gate.promising == 0
        monkeypatch.setattr(captured_drafter, "_MANY_BYTES", 1)
        loop = self.built(decoding=decoding).loop
        assert loop.drafter.promising is None and loop.gate.promising > 0

    def test_auto_drafts_by_it_last(self):
        assert isinstance(self.built(decoding="auto").loop.drafter.drafters[-1], CapturedDrafter)

    @pytest.mark.parametrize("dtype", ["int8", "int4"])
    def test_types_of_the_kernels_are_refused(self, dtype):
        words = f"--drafter-dtype {dtype}: on a GPU, give float16"
        with pytest.raises(PluginError, match=words):
            self.built(drafter_dtype=dtype)


def test_the_last_token_of_a_draft_costs_too():
    sample, ours = tiny.sample([5], 5), generator(MODELS[:1], 6, max_len_b=40)
    ours.generate(MODELS[:1], sample)
    work, drafter = Work(MODELS[:1], [6], ours.statistics), ours.loop.drafter
    drafts = sum(ours.statistics.draft_lengths.values())
    without = work.decoding(work.drafted)
    expected = without * (work.drafted + drafts) / work.drafted
    assert drafter.cost(work) == pytest.approx(expected) and expected > without > 0
