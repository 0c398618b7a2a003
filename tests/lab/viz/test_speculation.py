"""What became of drafts, by hand and against full passes."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.lab.viz.kinds import Kind
from specdec_plugin.lab.viz.speculation import classify, judge, observe
from tests.support import tiny
from tests.support.hostile import HostileDrafter
from tests.support.observed import MODELS, decode, full_pass
from tests.support.prefixes import common_prefix

A, T, B, D = Kind.ACCEPTED, Kind.TOP_BETA, Kind.BIFURCATION, Kind.DISCARDED


@pytest.mark.parametrize(
    "draft, added, best, kinds",
    [
        ([], [5], [5], []),
        ([5, 6, 7], [5, 6, 7, 8], [5, 6, 7, 8], [A, A, A]),
        ([5, 6, 7], [5, 9], [5, 9], [A, B, D]),
        ([5, 6, 7], [9], [9], [B, D, D]),
        ([5, 6, 7], [5, 6, 9], [5, 4, 9], [A, T, B]),
        ([5, 6, 7], [5, 6, 7, 8], [4, 6, 4, 8], [T, A, T]),
        ([5, 2, 7, 7], [5, 2], [5, 2], [A, A, D, D]),  # 2 ends the sentence
        ([5, 2], [5, 2], [5, 4], [A, T]),
        ([5, 6], [2], [2], [B, D]),
    ],
)
def test_fates(draft, added, best, kinds):
    assert classify(draft, added, best) == kinds


def test_an_iteration_in_full():
    chances = torch.arange(40.0).view(4, 10) / 100
    found = judge(1, [5, 6, 7], [5, 9], [3, 5, 9, 2], chances)
    assert [one.kind for one in found.draft] == [A, B, D]
    assert [one.probability for one in found.draft] == pytest.approx([0.15, 0.26, None])
    assert (found.kept, found.added, found.own) == (1, [5, 9], pytest.approx(0.29))
    ended = judge(2, [4, 2], [4, 2], [3, 5, 4, 2], chances)
    assert (ended.kept, ended.own) == (2, None)


@settings(max_examples=60)
@given(
    source=st.integers(1, 9),
    seed=st.integers(0, 10_000),
    beta=st.sampled_from([1, 3]),
    honesty=st.sampled_from([0.0, 0.6, 1.0]),
)
def test_hostile_drafts(source, seed, beta, honesty):
    tolerance, max_len, model = 2.0, 14, MODELS[seed % 3]
    sample = tiny.sample([source], seed)
    truth, _ = decode([model], sample, lambda *_: None, max_len_b=max_len)
    drafter = HostileDrafter([truth["tokens"].tolist()], honesty, 5, seed)
    rule = TopBeta(beta, tolerance)
    found, trace = decode([model], sample, observe, drafter, rule, max_len_b=max_len)
    iterations, output = found["observed"], found["tokens"].tolist()
    assert [token for each in iterations for token in each.added] == output
    assert [each.kept for each in iterations] == kept_by_history(found)
    assert sum(trace.kept_lengths.elements()) == sum(each.kept for each in iterations)
    _, masked = full_pass([model], sample, output, 1, max_len)
    best = masked.argmax(1)
    for each in iterations:
        for place, one in enumerate(each.draft, each.begin):
            if one.kind is D:
                assert one.probability is None
                continue
            chance = float(masked[place, one.token].exp())  # 0 where the rules forbid it
            assert one.probability == pytest.approx(chance, abs=1e-5)
            assert (one.kind is A) == (one.token == best[place] == output[place])
            if one.kind is T:
                assert beta > 1 and one.token == output[place]
                assert float(masked[place].max() - masked[place, one.token]) <= tolerance + 1e-4
            if one.kind is B:
                assert one.token != output[place] == best[place]
                assert place == each.begin + each.kept


def kept_by_history(found):
    """Kept tokens of each iteration, counted from the generator's own history."""
    tokens = [step["tokens"].tolist() for step in found["history"]]
    both = zip(tokens[::2], tokens[1::2], strict=True)
    return [common_prefix(draft, added) for draft, added in both]
