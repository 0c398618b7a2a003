"""The loop against fairseq's own greedy search, with drafters that try to mislead it."""

import gc
import math
import weakref

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.drafter import Drafter
from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.state import Draft
from specdec_plugin.engine import GraphBackend, NativeBackend, TorchBackend
from specdec_plugin.errors import PluginError
from tests.support import methods as ways
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.hostile import HostileDrafter
from tests.support.search import (
    MODELS,
    SYMBOLS,
    VERIFYING,
    assert_same,
    ours,
    reference,
    settings_of_search,
)


@settings(max_examples=120)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=5),
    models=st.sampled_from([[0], [1], [2], [0, 1], [0, 1, 2]]),
    options=settings_of_search,
    prefix_size=st.integers(0, 4),
    honesty=st.sampled_from([0.0, 0.5, 0.9, 1.0]),
    most=st.integers(0, 9),
    seed=st.integers(0, 10**6),
    verifying=VERIFYING,
)
def test_hostile_drafters_change_nothing(
    sources, models, options, prefix_size, honesty, most, seed, verifying
):
    chosen = [MODELS[index] for index in models]
    sample = tiny.sample(sources, seed)
    prefix = None
    if prefix_size > 0:
        torch.manual_seed(seed)
        prefix = torch.randint(3, 16, (len(sources), prefix_size))
        real = torch.randint(0, prefix_size + 1, (len(sources), 1))
        prefix = prefix.masked_fill(torch.arange(prefix_size) >= real, SYMBOLS.pad())
    expected = reference(chosen, sample, prefix, **options)
    truth = [row["tokens"].tolist() for row in expected]
    drafter = HostileDrafter(truth, honesty, most, seed)
    found, _ = ours(chosen, sample, drafter, TopBeta(), prefix, verifying=verifying, **options)
    assert_same(found, expected)


class Careless(Drafter):
    """Drafts symbols 5 and 6, in a form that a method of one's own may choose."""

    def __init__(self, change):
        self.change = change

    def propose(self, rows):
        draft = Draft(torch.tensor([[5, 6]] * rows.size), torch.full((rows.size,), 2))
        return draft._replace(**self.change(draft))


FORMS = {
    "short tokens": lambda draft: {"tokens": draft.tokens.int()},
    "short lengths": lambda draft: {"lengths": draft.lengths.int()},
    "lengths beyond the tokens": lambda draft: {"lengths": draft.lengths + 9},
    "a symbol behind the draft": lambda draft: {
        "tokens": torch.tensor([[5, 10**9]] * len(draft.tokens)),
        "lengths": draft.lengths - 1,
    },
}
REFUSED = {
    "a symbol beyond the last": lambda draft: {"tokens": draft.tokens + 10**7},
    "a negative symbol": lambda draft: {"tokens": -draft.tokens},
    "too few rows": lambda draft: {"tokens": draft.tokens[:1]},
    "too few lengths": lambda draft: {"lengths": draft.lengths[:1]},
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_draft_changes_nothing(form):
    sample = tiny.sample([5, 3, 6], 2)
    found, _ = ours(MODELS[:1], sample, Careless(FORMS[form]), TopBeta(), max_len_b=12)
    assert_same(found, reference(MODELS[:1], sample, max_len_b=12))


@needs_kernels
@pytest.mark.parametrize("form", REFUSED)
def test_a_draft_of_what_there_is_not_is_refused(form):
    """Kernels would read any memory."""
    with pytest.raises(PluginError, match=r"^a drafter proposed .* Let it propose"):
        ours(MODELS[:1], tiny.sample([5, 3]), Careless(REFUSED[form]), TopBeta(), max_len_b=12)


@pytest.mark.parametrize("honesty", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("verifying", [None, TorchBackend()])
def test_a_watcher_is_told_each_token_when_it_is_chosen(honesty, verifying):
    sample = tiny.sample([3, 0, 5, 2, 6])
    expected = reference(MODELS[:1], sample, max_len_b=12)
    truth = [row["tokens"].tolist() for row in expected]
    seen = [[] for _ in truth]
    calls = []

    def watch(rows, draft, outcome):
        calls.append(len(rows.order))
        for row, index in enumerate(rows.order):
            end = rows.host_lengths[row] + 1
            added = rows.inputs[row, end - outcome.added[row] : end].tolist()
            kept = outcome.kept[row]
            assert draft.tokens[row, :kept].tolist() == added[:kept]
            seen[index] += added

    drafter = HostileDrafter(truth, honesty, 3, seed=1)
    found, statistics = ours(
        MODELS[:1], sample, drafter, TopBeta(), verifying=verifying, watcher=watch, max_len_b=12
    )
    assert_same(found, expected)
    assert seen == truth and sum(calls) == statistics.iterations


@settings(max_examples=60)
@given(
    sources=st.lists(st.integers(0, 7), min_size=1, max_size=4),
    beta=st.integers(1, 4),
    tolerance=st.sampled_from([0.0, 0.7, 3.0, math.inf]),
    min_len=st.integers(0, 4),
    max_len=st.integers(4, 14),
    seed=st.integers(0, 10**6),
)
def test_the_native_step_is_the_loop_on_operators(sources, beta, tolerance, min_len, max_len, seed):
    sample, rule = tiny.sample(sources, seed), TopBeta(beta, tolerance)
    lengths = {"min_len": min_len, "max_len_b": max_len}
    truth = [row["tokens"].tolist() for row in reference(MODELS[:1], sample, **lengths)]
    both = []
    for verifying in (TorchBackend(), NativeBackend()):
        drafter = HostileDrafter(truth, 0.7, 6, seed)
        both.append(ours(MODELS[:1], sample, drafter, rule, verifying=verifying, **lengths))
    (expected, counted), (found, counts) = both
    assert_same(found, expected)
    for mine, theirs in zip(found, expected, strict=True):
        assert mine["steps"] == theirs["steps"]
        histories = [[step["tokens"].tolist() for step in row["history"]] for row in (mine, theirs)]
        assert histories[0] == histories[1]
    assert counts.kept_lengths == counted.kept_lengths
    assert counts.draft_lengths == counted.draft_lengths


@settings(max_examples=25)
@given(st.lists(st.integers(0, 7), min_size=1, max_size=4), st.integers(0, 999))
def test_top_one_is_exact(sources, seed):
    sample = tiny.sample(sources, seed)
    expected = reference(MODELS[:1], sample, max_len_b=12)
    truth = [row["tokens"].tolist() for row in expected]
    drafter = HostileDrafter(truth, 0.6, 5, seed)
    found, _ = ours(MODELS[:1], sample, drafter, TopBeta(1, 9.0), max_len_b=12)
    assert_same(found, expected)


def test_greedy_needs_one_iteration_a_token():
    sample = tiny.sample([4, 2, 6], 1)
    found, statistics = ours(MODELS[:1], sample, None, TopBeta(), max_len_b=12)
    assert_same(found, reference(MODELS[:1], sample, max_len_b=12))
    assert [row["steps"] for row in found] == [len(row["tokens"]) for row in found]
    assert statistics.accepted_tokens == 1.0


def test_perfect_drafts_save_iterations_and_history_adds_up():
    sample = tiny.sample([4, 2, 6], 1)
    expected = reference(MODELS[:1], sample, max_len_b=12)
    truth = [row["tokens"].tolist() for row in expected]

    class Honest(HostileDrafter):
        def propose(self, rows):
            draft = super().propose(rows)
            return draft._replace(lengths=torch.full_like(draft.lengths, draft.tokens.size(1)))

    found, statistics = ours(MODELS[:1], sample, Honest(truth, 1.0, 6, 3), TopBeta(), max_len_b=12)
    assert_same(found, expected)
    assert statistics.accepted_tokens > 1.5
    assert statistics.tokens == sum(map(len, truth))
    assert statistics.iterations == sum(row["steps"] for row in found)
    for row in found:
        added = [step["tokens"] for step in row["history"][1::2]]
        assert torch.cat(added).tolist() == row["tokens"].tolist()
        assert len(row["history"]) == 2 * row["steps"]


@pytest.mark.parametrize("backend", [None, GraphBackend()], ids=["kernels", "graphs"])
def test_rows_for_which_it_is_too_late_are_decoded_as_without_a_drafter(backend):
    """Nothing is proposed for them: an empty draft would take an iteration of its own."""
    sample = tiny.sample([4, 2, 6], 1)

    class Late(HostileDrafter):
        def too_late(self, batch, rows):
            assert batch.size == 3
            return rows.shortest < 4

    for gate, first in ((FixedGate(3), 4), (FixedGate(), 0)):  # the last one always drafts
        drafter, asked = Late([[]] * 3, 1.0, 6, 3), []
        drafter.propose = lambda rows, asked=asked: (
            asked.append(rows.shortest) or rows.empty_draft()
        )
        found, statistics = ours(
            MODELS[:1], sample, drafter, TopBeta(), verifying=backend, max_len_b=12, gate=gate
        )
        assert_same(found, reference(MODELS[:1], sample, max_len_b=12))
        assert asked and min(asked) == first and (statistics.gated > 0) == (first > 0)


def naive_relaxed(model, source_sample, truth_draft, beta, tolerance, max_len):
    """SpecDec++ for one sentence, with fairseq's uncached forward and the same drafts."""
    encoder_out = model.encoder.forward_torchscript(source_sample["net_input"])
    output, drafts = [], iter(truth_draft)
    while True:
        draft = next(drafts)[: max_len - len(output)]
        fed = torch.tensor([[2, *output, *draft]])
        with torch.no_grad():
            lprobs = model.decoder(fed, encoder_out=encoder_out)[0].log_softmax(-1)[0]
        added = []
        for place in range(len(draft) + 1):
            step = len(output) + place
            scores = lprobs[step].clone()
            scores[1] = -math.inf
            if step >= max_len:
                scores[:2] = scores[3:] = -math.inf
            if step < 1:
                scores[2] = -math.inf
            best = int(scores.argmax())
            if place < len(draft):
                token = draft[place]
                rank = int((scores > scores[token]).sum())
                near = float(scores[best] - scores[token]) <= tolerance
                if rank < beta and near and scores[token] > -math.inf:
                    added.append(token)
                    if token == 2:
                        return output + added
                    continue
            added.append(best)
            break
        output += added
        if added[-1] == 2:
            return output


@pytest.mark.parametrize("beta, tolerance", [(2, math.inf), (3, 1.0), (5, 0.3), (20, math.inf)])
def test_relaxed_rule_against_one_by_one(beta, tolerance):
    for seed in range(12):
        sample = tiny.sample([5], seed)
        torch.manual_seed(seed)
        drafts = [torch.randint(0, 16, (4,)).tolist() for _ in range(40)]

        class Fixed(Drafter):
            def start(self, batch, drafts=drafts):
                self.drafts = iter(drafts)

            def propose(self, rows):
                return Draft(torch.tensor([next(self.drafts)]), torch.tensor([4]))

        expected = naive_relaxed(MODELS[0], sample, drafts, beta, tolerance, 15)
        rule = TopBeta(beta, tolerance)
        found, _ = ours(MODELS[:1], sample, Fixed(), rule, max_len_b=15)
        assert found[0]["tokens"].tolist() == expected


@pytest.mark.parametrize("way", ["self-draft", "chain", "joint heads", "auto"])
def test_a_batch_that_is_interrupted_is_let_go(way):
    """Its caches, and the outputs of encoders, may take much memory until the next one."""
    model, sample = ways.verifier(way), tiny.sample([5, 3, 6], 2)
    ours = ways.generator(way, model)
    outputs = []

    def interrupt(rows, draft, outcome):
        outputs.extend(map(weakref.ref, ours.loop.step.verifier.states))
        raise KeyboardInterrupt

    ours.loop.watcher = interrupt
    with pytest.raises(KeyboardInterrupt):
        ours.generate([model], sample)
    gc.collect()
    assert outputs and not any(each() for each in outputs)
    ours.loop.watcher = None
    fresh = ways.generator(way, model)
    found, expected = (each.generate([model], sample) for each in (ours, fresh))
    assert_same([row[0] for row in found], [row[0] for row in expected])
