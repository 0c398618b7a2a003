"""Our search for phrases chooses what fairseq's does, from any log-probabilities."""

import math

import pytest
import torch
from fairseq.search import LexicallyConstrainedBeamSearch
from fairseq.token_generation_constraints import pack_constraints
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.fairseq_compat.phrase_search import PhraseSearch
from tests.support import tiny

WORDS = 20
SYMBOLS = tiny.dictionary(WORDS)

phrase = st.lists(st.integers(4, 9), min_size=1, max_size=4)
sentence = st.lists(phrase, max_size=3)


def drawn(seed, rows, beams, step, impossible):
    """Log-probabilities, some of which are impossible, and totals of the beams."""
    generator = torch.Generator().manual_seed(100 * seed + step)
    lprobs = torch.randn(rows, beams, len(SYMBOLS), generator=generator).mul(3).log_softmax(-1)
    lprobs[torch.rand(lprobs.shape, generator=generator) < impossible] = -math.inf
    scores = -torch.rand(rows, beams, step, generator=generator).cumsum(2)
    return lprobs, scores


@pytest.mark.parametrize("order", ["ordered", "unordered"])
@given(
    st.lists(sentence, min_size=1, max_size=4),
    st.integers(1, 6),
    st.integers(0, 99),
    st.sampled_from([0.0, 0.0, 0.3]),
    st.randoms(use_true_random=False),
)
@settings(max_examples=60, deadline=None)
def test_candidates_are_fairseqs(order, phrases, beams, seed, impossible, choice):
    """In each step, whatever becomes the beams, and whichever sentences are done."""
    packed = pack_constraints([[torch.tensor(each) for each in row] for row in phrases])
    searches = [kind(SYMBOLS, order) for kind in (LexicallyConstrainedBeamSearch, PhraseSearch)]
    for search in searches:
        search.init_constraints(packed, beams)
    rows = len(phrases)
    for step in range(8):
        lprobs, scores = drawn(seed, rows, beams, step, impossible)
        theirs, ours = (search.step(step, lprobs.clone(), scores) for search in searches)
        assert torch.equal(ours[0], theirs[0])
        possible = ours[0] > -math.inf
        for mine, expected in zip(ours[1:], theirs[1:], strict=True):
            assert mine.dtype == expected.dtype
            assert torch.equal(mine[possible], expected[possible])
        if rows > 1 and choice.random() < 0.3:
            left = torch.tensor(sorted(choice.sample(range(rows), rows - 1)))
            rows -= 1
            for search in searches:
                search.prune_sentences(left)
        ranks = torch.tensor([choice.sample(range(2 * beams), beams) for _ in range(rows)])
        for search in searches:
            search.update_constraints(ranks)
        banks = [[[each.bank for each in row] for row in s.constraint_states] for s in searches]
        assert banks[0] == banks[1]


def test_a_state_is_asked_once_about_tokens_of_no_phrase(monkeypatch):
    search = PhraseSearch(SYMBOLS, "unordered")
    search.init_constraints(pack_constraints([[torch.tensor([5, 6])]]), 5)
    (first, *_), *_ = search.constraint_states
    kind = type(first._state)
    asked, advance = [], kind.advance
    monkeypatch.setattr(kind, "advance", lambda self, t: asked.append(t) or advance(self, t))
    after = [first.advance(token) for token in (7, 8, 9, 5, 5, 7)]
    assert asked == [7, 5]
    assert [each.bank for each in after] == [0, 0, 0, 1, 1, 0]
