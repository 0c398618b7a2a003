"""Acceptance against a loop over tokens."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import Distance, MinBlock, TopBeta, judge, judge_best
from specdec_plugin.decoding.state import Draft
from specdec_plugin.engine.output_projection import Scores

EOS = 2


def naive(lprobs, draft, beta, tolerance):
    """What one row adds, token by token: (token, log-probability) pairs, and kept drafts."""
    added = []
    for place, token in enumerate(draft):
        order = sorted(lprobs[place], reverse=True)
        own = lprobs[place][token]
        near = beta > 1 and math.isfinite(own) and order[0] - own <= tolerance
        if own != order[0] and not (near and own >= order[min(beta, len(order)) - 1]):
            break
        added.append((token, own))
        if token == EOS:
            return added, len(added)
    kept = len(added)
    best = max(range(len(lprobs[kept])), key=lprobs[kept].__getitem__)
    return [*added, (best, lprobs[kept][best])], kept


@settings(max_examples=150, derandomize=True)
@given(data=st.data())
def test_judge(data):
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 5))
    vocabulary = data.draw(st.sampled_from([5, 16, 35]))
    torch.manual_seed(data.draw(st.integers(0, 999)))
    values = torch.randn(rows, width + 1, vocabulary) * 2
    normalisers = values.logsumexp(2)
    values[..., 1] = -math.inf
    lengths = torch.tensor([data.draw(st.integers(0, width)) for _ in range(rows)])
    # Likely tokens are drafted often enough for long prefixes to be kept.
    best = values[:, :width].topk(3, dim=2).indices
    choice = torch.randint(0, 3, (rows, width, 1)) * torch.randint(0, 2, (rows, width, 1))
    tokens = best.gather(2, choice).squeeze(2)
    rule = TopBeta(data.draw(st.integers(1, 4)), data.draw(st.sampled_from([0.0, 0.7, math.inf])))
    scores, draft = Scores(values, normalisers), Draft(tokens, lengths)

    found = judge(scores, draft, rule, EOS)
    for row in range(rows):
        lprobs = (values[row] - normalisers[row].unsqueeze(1)).tolist()
        drafted = tokens[row, : lengths[row]].tolist()
        added, kept = naive(lprobs, drafted, rule.beta, rule.tolerance)
        count = int(found.counts[row])
        assert found.tokens[row, :count].tolist() == [token for token, _ in added]
        wanted = torch.tensor([score for _, score in added])
        torch.testing.assert_close(found.scores[row, :count], wanted, atol=1e-5, rtol=1e-5)
        assert int(found.kept[row]) == kept
        assert bool(found.ended[row]) == (added[-1][0] == EOS)
    if rule.exact:
        best = values.argmax(2)
        alike = judge_best(best, scores.of(best), draft, EOS)
        for name in ("counts", "kept", "ended", "best"):
            assert torch.equal(getattr(alike, name), getattr(found, name))
        place = torch.arange(width + 1) < found.counts.unsqueeze(1)
        assert torch.equal(alike.tokens[place], found.tokens[place])
        assert torch.equal(alike.scores[place], found.scores[place])


def naive_rule(values, token, rule, place):
    """Whether one drafted token may stand, given the masked scores of its place."""
    best = max(range(len(values)), key=values.__getitem__)
    if token == best:
        return True
    if not math.isfinite(values[token]):
        return False
    if isinstance(rule, MinBlock):
        if place < rule.min_block - 1 and EOS not in (token, best):
            return True
        return naive_rule(values, token, rule.rule, place)
    if isinstance(rule, Distance):
        return abs(NUMBERS[token] - NUMBERS[best]) <= rule.epsilon
    rank = sum(value > values[token] for value in values)
    return rank < rule.beta and values[best] - values[token] <= rule.tolerance


#: Four special symbols, numbers with a gap, and a word.
NUMBERS = [math.nan] * 4 + [0.0, 1.0, 2.0, 2.5, 9.0, 10.0, 11.0, math.nan]


@settings(max_examples=150, derandomize=True)
@given(data=st.data())
def test_numbers_that_are_near_and_the_least_block(data):
    rows, width = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 6))
    torch.manual_seed(data.draw(st.integers(0, 999)))
    values = torch.randn(rows, width + 1, len(NUMBERS)) * 2
    values[..., 1] = -math.inf
    values[torch.rand(values.shape) < 0.1] = -math.inf
    values[..., 5] = values[..., 5].clamp(min=-9)  # something is left
    tokens = torch.randint(0, len(NUMBERS), (rows, width))
    lengths = torch.tensor([data.draw(st.integers(0, width)) for _ in range(rows)])
    rule = data.draw(
        st.sampled_from(
            [Distance(torch.tensor(NUMBERS), epsilon) for epsilon in (0.0, 1.0, 7.0)]
            + [TopBeta(), TopBeta(3), TopBeta(2, 0.5)]
        )
    )
    if data.draw(st.booleans()):
        rule = MinBlock(rule, data.draw(st.integers(1, 7)), EOS)
    assert rule.exact == (isinstance(rule, TopBeta) and rule.beta == 1)
    normalisers = torch.zeros(rows, width + 1)
    found = judge(Scores(values, normalisers), Draft(tokens, lengths), rule, EOS)
    for row in range(rows):
        expected, kept = [], 0
        for place in range(width + 1):
            scores = values[row, place].tolist()
            drafted = int(tokens[row, place]) if place < int(lengths[row]) else None
            if drafted is None or not naive_rule(scores, drafted, rule, place):
                expected.append(max(range(len(scores)), key=scores.__getitem__))
                break
            expected.append(drafted)
            kept += 1
            if drafted == EOS:
                break
        assert found.tokens[row, : int(found.counts[row])].tolist() == expected
        assert int(found.kept[row]) == kept
