"""Proposal heads against the paper's formula, weight by weight."""

import pytest
import torch

from specdec_plugin.models.proposal_heads import ProposalHeads, Source

DIM, HIDDEN, K = 6, 5, 4


def heads(joint, learned_first=False, seed=0):
    torch.manual_seed(seed)
    built = ProposalHeads(DIM, HIDDEN, K, joint, learned_first)
    with torch.no_grad():
        for weight in built.parameters():
            weight.normal_()
    return built.eval()


@torch.no_grad()
def naive(built, state, head):
    """z_i of one state, a number at a time."""
    if head < built.first:
        return state
    units = [
        max(0.0, float(bias) + sum(float(weight[i] * state[i]) for i in range(DIM)))
        for weight, bias in zip(built.inner.weight, built.inner.bias, strict=True)
    ]
    place = head - built.first
    if not built.joint:
        units = units[place * HIDDEN : (place + 1) * HIDDEN]
    found = []
    for i in range(DIM):
        row = built.outer.weight[place * DIM + i]
        assert len(row) == len(units)
        change = sum(float(weight) * unit for weight, unit in zip(row, units, strict=True))
        found.append(float(state[i]) + float(built.outer.bias[place * DIM + i]) + change)
    return torch.tensor(found)


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("learned_first", [True, False])
def test_the_formula(joint, learned_first):
    built = heads(joint, learned_first)
    states = torch.randn(2, 3, DIM)
    with torch.no_grad():
        found = built(states, range(1, K + 1))
    assert len(found) == K
    for head, state in zip(range(1, K + 1), found, strict=True):
        for row in range(2):
            for place in range(3):
                wanted = naive(built, states[row, place], head)
                torch.testing.assert_close(state[row, place], wanted, atol=1e-4, rtol=1e-4)
    assert torch.equal(found[0], states) != learned_first


@pytest.mark.parametrize("joint", [True, False])
def test_some_heads_are_those_of_all(joint):
    built, states = heads(joint), torch.randn(5, DIM)
    every = built(states, range(1, K + 1))
    for some in ([3], [1], [4, 2], []):
        for head, state in zip(some, built(states, some), strict=True):
            assert torch.allclose(state, every[head - 1])


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("learned_first", [True, False])
def test_at_first_every_head_is_the_model(joint, learned_first):
    built, states = ProposalHeads(DIM, HIDDEN, K, joint, learned_first), torch.randn(5, DIM)
    for state in built(states, range(1, K + 1)):
        assert torch.equal(state, states)


def test_sizes_are_the_papers():
    """With a head 1 of its own, hidden size k d_hidden and output size k d_model."""

    def count(*form):
        return sum(weight.numel() for weight in ProposalHeads(256, 1024, 8, *form).parameters())

    biases = 8 * 1024 + 8 * 256
    assert count(True, True) == 8 * 1024 * (256 + 8 * 256) + biases
    assert count(False, True) == 8 * 2 * 1024 * 256 + biases
    assert count(True, False) < count(True, True) and count(False, False) < count(False, True)


def test_separate_heads_share_nothing():
    built, states = heads(joint=False), torch.randn(3, DIM)
    (state,) = built(states, [3])
    state.sum().backward()
    begin = (3 - built.first) * HIDDEN
    touched = built.inner.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    assert set(touched) <= set(range(begin, begin + HIDDEN))


def test_dropout_in_training_only():
    built = ProposalHeads(DIM, HIDDEN, K, dropout=0.5, inner_dropout=0.5)
    with torch.no_grad():
        for weight in built.parameters():
            weight.normal_()
    states = torch.randn(50, DIM)
    assert not torch.equal(built(states, [2])[0], built(states, [2])[0])
    built.eval()
    assert torch.equal(built(states, [2])[0], built(states, [2])[0])


def random_source(rows=2, length=4, seed=3):
    torch.manual_seed(seed)
    keys, values = torch.randn(2, rows, 2, length, 3)
    return Source(keys, values, None)


def test_heads_that_read_the_source_find_what_the_state_does_not_say():
    built = ProposalHeads(DIM, HIDDEN, K, joint=False, readers=2, source_dim=6).eval()
    states, source = torch.randn(2, 3, DIM), random_source()
    for state in built(states, range(1, K + 1), source):
        assert torch.equal(state, states)
    with torch.no_grad():
        built.outer.weight.normal_()
        found, other = (built(states, [1, 3], each) for each in (source, random_source(seed=4)))
    assert torch.equal(found[0], other[0]) and not torch.equal(found[1], other[1])
    # Padding is not read.
    longer = [torch.cat([part, torch.randn(2, 2, 5, 3)], 2) for part in source[:2]]
    told = torch.arange(9).lt(4).expand(2, 1, 1, 9)
    padded = built(states, [3], Source(*longer, told))[0]
    torch.testing.assert_close(padded, found[1])


def test_heads_that_read_the_source_start_from_more_of_them():
    form = dict(joint=False, readers=2, source_dim=6)
    more, fewer = (ProposalHeads(DIM, HIDDEN, k, **form).eval() for k in (K, K - 1))
    with torch.no_grad():
        more.outer.weight.normal_()
    fewer.start_as(more)
    states, source = torch.randn(2, 3, DIM), random_source()
    ours, theirs = (each(states, range(1, K), source) for each in (fewer, more))
    for one, two in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, two)
    with pytest.raises(ValueError, match=r"source-reading heads .* cannot become .* separate"):
        ProposalHeads(DIM, HIDDEN, K, joint=False).start_as(more)
    for wrong in (dict(joint=True), dict(joint=False, learned_first=True)):
        with pytest.raises(ValueError, match="cannot read the source"):
            ProposalHeads(DIM, HIDDEN, K, **wrong, readers=2, source_dim=6)


def test_starting_from_more_heads():
    """Separate heads are the first of those that are trained; then they go their own way."""
    more, fewer = heads(False, seed=1), ProposalHeads(DIM, HIDDEN, K - 1, False)
    fewer.start_as(more)
    states = torch.randn(5, DIM)
    for ours, theirs in zip(
        fewer.eval()(states, range(1, K)), more(states, range(1, K)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)
    with torch.no_grad():
        fewer.inner.weight.zero_()
    assert more.inner.weight.abs().min() > 0
    joint = ProposalHeads(DIM, HIDDEN, K, True)
    joint.start_as(heads(True, seed=2))
    assert torch.equal(joint.outer.weight, heads(True, seed=2).outer.weight)


@pytest.mark.parametrize(
    "changes",
    [
        dict(dim=DIM + 1),
        dict(hidden=HIDDEN + 1),
        dict(block_size=K + 1),
        dict(joint=True),
        dict(learned_first=True),
    ],
)
def test_heads_of_another_form(changes):
    form = dict(dim=DIM, hidden=HIDDEN, block_size=K, joint=False, learned_first=False)
    with pytest.raises(ValueError, match=f"^{K} separate heads of 5 units on 6 states cannot"):
        ProposalHeads(**{**form, **changes}).start_as(heads(False))
    with pytest.raises(ValueError, match="4 joint heads"):
        ProposalHeads(DIM, HIDDEN, K - 1, True).start_as(heads(True))
