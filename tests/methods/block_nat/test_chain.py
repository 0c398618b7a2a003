"""A chain head in decoding against the same head in training, and drafts that stop early."""

import pytest
import torch
from torch import nn

from specdec_plugin.decoding.drafter import confident
from specdec_plugin.engine import CachedDecoder
from specdec_plugin.methods.block_nat.chain import Chain
from specdec_plugin.models.chain_head import ChainHead
from tests.support import architectures
from tests.support.architectures import build_model

pytestmark = pytest.mark.usefixtures("seeded")

UNITS = 20


@pytest.fixture
def parts(backend):
    model = build_model()
    head = ChainHead(16, 16, UNITS)
    nn.init.normal_(head.out.weight)
    engine = CachedDecoder(model.decoder, backend=backend)
    chain = Chain(head.eval(), engine)
    return model.decoder, head, chain


@torch.no_grad()
def naive(decoder, head, states, last):
    """Tokens and log-probabilities, one at a time, by the formulas of the docstring."""
    rows = []
    for row in range(states.size(0)):
        token, chain, found = int(last[row]), torch.zeros(UNITS), []
        for state in states[row]:
            before = 4 * decoder.embed_tokens.weight[token]
            chain = torch.relu(
                head.from_state(state) + head.from_token(before) + head.from_chain(chain)
            )
            lprobs = decoder.output_layer(state + head.out(chain)).log_softmax(-1)
            token = int(lprobs.argmax())
            found.append((token, float(lprobs[token])))
        rows.append(found)
    tokens = torch.tensor([[token for token, _ in row] for row in rows])
    return tokens, torch.tensor([[score for _, score in row] for row in rows])


@pytest.mark.parametrize("rows", [1, 3])
def test_drafts_equal_the_formulas(parts, rows):
    decoder, head, chain = parts
    states, last = torch.randn(rows, 6, 16), torch.randint(4, 20, (rows,))
    expected, scores = naive(decoder, head, states, last)
    tokens, lengths = chain.draft(states, last, 0.0)
    assert torch.equal(tokens, expected)
    assert lengths.tolist() == [6] * rows
    with torch.no_grad():
        tokens, found = chain.choose(states, last)
    assert torch.equal(tokens, expected)
    torch.testing.assert_close(found, scores, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_candidates_of_a_large_vocabulary_hold_the_best(threads, rows, backend, monkeypatch):
    """Each thread searches the symbols that it scored; a block is longer than one search."""
    monkeypatch.setattr(architectures, "VOCABULARY", 1300)
    model, head = build_model(), ChainHead(16, 16, UNITS)
    # The states change so little that their best symbols are candidates.
    nn.init.normal_(head.out.weight, std=0.02)
    chain = Chain(head.eval(), CachedDecoder(model.decoder, backend=backend))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(20):
            states, last = torch.randn(rows, 11, 16), torch.randint(4, 1300, (rows,))
            expected, _ = naive(model.decoder, head, states, last)
            tokens, lengths = chain.draft(states, last, 1e-36)
            assert torch.equal(tokens, expected)
            assert lengths.tolist() == [11] * rows
    finally:
        torch.set_num_threads(before)


def test_training_sees_the_same_states(parts):
    decoder, head, chain = parts
    states, last = torch.randn(2, 5, 16), torch.tensor([7, 9])
    tokens, _ = chain.draft(states, last, 0.0)
    before = torch.cat([last.unsqueeze(1), tokens[:, :-1]], dim=1)
    with torch.no_grad():
        whole = head(states, 4 * decoder.embed_tokens(before))
    assert torch.equal(decoder.output_layer(whole).argmax(-1), tokens)


@pytest.mark.parametrize("floor", [0.01, 0.05, 0.3])
def test_stops_where_it_is_unsure(parts, floor):
    decoder, head, chain = parts
    states, last = torch.randn(5, 6, 16), torch.randint(4, 20, (5,))
    expected, scores = naive(decoder, head, states, last)
    tokens, lengths = chain.draft(states, last, floor)
    for row in range(5):
        certain, wanted = 1.0, 0
        for score in scores[row].exp().tolist():
            certain *= score
            if certain < floor:
                break
            wanted += 1
        assert int(lengths[row]) == wanted
        assert torch.equal(tokens[row, :wanted], expected[row, :wanted])


def test_confident():
    scores = torch.tensor([[0.9, 0.5, 0.9], [0.3, 0.9, 0.9]]).log()
    assert confident(scores, 0.4).tolist() == [3, 0]
    assert confident(scores, 0.5).tolist() == [1, 0]
    assert confident(scores, 0.0).tolist() == [3, 3]


def test_a_new_head_changes_nothing():
    head = ChainHead(8, 8, UNITS)
    states = torch.randn(2, 3, 8)
    assert torch.equal(head(states, torch.randn(2, 3, 8)), states)
