"""The kernel of Triton that chooses a whole block, against PyTorch's operators.

Without a GPU it is interpreted, if TRITON_INTERPRET=1 was set before PyTorch was imported. Then one
program does all, because programs run one after another. On a GPU there are also several, some of
them with tokens only, with units only, and with both.
"""

import os

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, GraphBackend, TorchBackend
from specdec_plugin.methods.block_nat import whole_block
from specdec_plugin.methods.block_nat.chain import Chain
from specdec_plugin.methods.block_nat.whole_block import POSITIONS, WholeBlock
from tests.support import chains

#: Vocabularies and units.
SIZES = [(44, 20), (41, 16), (50, 14)]
#: Triton's interpreter multiplies the bits of bfloat16 as if they were integers.
TYPES = [torch.float16]
if os.environ.get("TRITON_INTERPRET") != "1":
    SIZES += [(1000, 512), (1000, 40), (128, 70), (61, 300)]
    TYPES.append(torch.bfloat16)

pytestmark = pytest.mark.usefixtures("seeded", "supported")


@pytest.fixture
def calls(monkeypatch):
    """How many positions each block has that the kernel chooses."""
    found, best = [], WholeBlock.best

    def counted(self, states, last):
        found.append(states.size(0))
        return best(self, states, last)

    monkeypatch.setattr(WholeBlock, "best", counted)
    return found


def chain_of(head, decoder, dtype=torch.float16):
    """A chain with kernels."""
    return Chain(head, CachedDecoder(decoder, dtype, backend=GraphBackend()))


@pytest.fixture
def block(device, monkeypatch):
    """A chain, the states of a block, the token before it, and its tokens."""
    head, decoder = chains.random_head(monkeypatch, 44, 20, device=device)
    chain, last = chain_of(head, decoder), torch.tensor([5], device=device)
    states = torch.randn(1, 5, 16, device=device).half()
    with torch.no_grad():
        return chain, states, last, chain.best(states, last)


def assert_nothing_is_left(chain):
    """What was sent is gone, as the next block needs it."""
    whole = chain.on_cuda._whole
    assert bool(whole._entering.isnan().all()) and bool((whole._keys == 2**63 - 1).all())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("length", [1, 2, 3, 9, POSITIONS])
@pytest.mark.parametrize("vocabulary, units", SIZES)
@torch.no_grad()
def test_tokens_are_those_of_pytorch(vocabulary, units, length, dtype, device, calls, monkeypatch):
    head, decoder = chains.random_head(monkeypatch, vocabulary, units, 16, True, device)
    chain, rows = chain_of(head, decoder, dtype), 8
    plain = Chain(head, CachedDecoder(decoder, dtype, backend=TorchBackend()))
    states = torch.randn(rows, length, 16, device=device).to(dtype)
    last = torch.randint(4, vocabulary, (rows,), device=device)
    calls.clear()
    found = [chain.best(*each) for each in zip(states.split(1), last.split(1), strict=True)]
    assert calls == [length] * rows
    expected, tolerance = plain.best(states, last), 0.03 if dtype == torch.float16 else 0.2
    chains.assert_follows(head, decoder, states, last, torch.cat(found), expected, tolerance)
    assert_nothing_is_left(chain)
    again = [chain.best(*each) for each in zip(states.split(1), last.split(1), strict=True)]
    assert torch.equal(torch.cat(again), torch.cat(found))


@torch.no_grad()
def test_the_first_of_equal_scores_counts(device, calls, monkeypatch):
    head, decoder = chains.random_head(monkeypatch, 44, 20, device=device)
    torch.nn.init.zeros_(head.out.weight)
    torch.nn.init.zeros_(head.out.bias)
    states, last = torch.ones(1, 3, 16, device=device).half(), torch.tensor([5], device=device)
    for others, equal in ((0.25, [43, 30, 21]), (-0.75, [40, 7, 8]), (0.25, [43])):
        decoder.output_projection.weight.fill_(others)
        decoder.output_projection.weight[equal] = others + 0.5
        assert chain_of(head, decoder).best(states, last).tolist() == [[min(equal)] * 3]
    assert calls.count(3) == 3


@torch.no_grad()
def test_numbers_that_are_none_give_tokens_and_do_no_harm(block):
    chain, states, last, expected = block
    for wrong in (torch.nan, torch.inf, 6e4):
        spoilt = states.clone()
        spoilt[0, 2] = wrong
        found = chain.best(spoilt, last)
        assert found.min() >= 0 and found.max() < 44
        assert torch.equal(found[:, :2], expected[:, :2])
        assert_nothing_is_left(chain)
    assert torch.equal(chain.best(states, last), expected)


@torch.no_grad()
def test_a_program_that_waited_too_long_continues(block, monkeypatch):
    """Its draft is wrong, and the next one is right again."""
    chain, states, last, expected = block
    for patience in (0, 2):
        with monkeypatch.context() as patch:
            patch.setattr(whole_block, "_PATIENCE", patience)
            found = chain.best(states, last)
        assert found.min() >= 0 and found.max() < 44 and not torch.equal(found, expected)
        assert_nothing_is_left(chain)
        assert torch.equal(chain.best(states, last), expected)


@torch.no_grad()
def test_what_it_is_not_for(device, calls, monkeypatch):
    """More rows, longer blocks, weights of 4 bytes or wide ones, and too many programs."""
    head, decoder = chains.random_head(monkeypatch, 44, 20, device=device)
    chain = chain_of(head, decoder)
    calls.clear()
    last = torch.tensor([5, 6], device=device)
    for rows, length in ((2, 3), (1, POSITIONS + 1), (1, POSITIONS)):
        chain.best(torch.randn(rows, length, 16, device=device).half(), last[:rows])
    assert calls == [POSITIONS]
    assert chain_of(head, decoder, torch.float32).on_cuda._whole is None
    wide, decoder = chains.random_head(monkeypatch, 44, 20, 528, device=device)
    assert chain_of(wide, decoder).on_cuda._whole is None
    monkeypatch.setattr(whole_block, "_processors", lambda device: 1)
    head, decoder = chains.random_head(monkeypatch, 60, 20, device=device)
    assert chain_of(head, decoder).on_cuda._whole is None
