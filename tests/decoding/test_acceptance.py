"""Acceptance against a loop over tokens."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.acceptance import TopBeta, judge
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


@settings(max_examples=150, deadline=None, derandomize=True)
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
