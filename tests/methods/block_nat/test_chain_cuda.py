"""Triton's kernels of a chain head against PyTorch's operators.

Without a GPU they are interpreted, if TRITON_INTERPRET=1 was set before PyTorch was imported.
"""

import logging

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, GraphBackend, TorchBackend
from specdec_plugin.methods.block_nat import chain_cuda
from specdec_plugin.methods.block_nat.chain import Chain
from specdec_plugin.vocab.clustered_projection import projection_by
from tests.support import chains, made

pytestmark = pytest.mark.usefixtures("seeded")

LENGTH = 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
@pytest.mark.parametrize("rows, biased", [(1, True), (2, False), (3, True), (4, False)])
@pytest.mark.parametrize("vocabulary, units", [(150, 20), (128, 32), (77, 300), (41, 515)])
@torch.no_grad()
def test_tokens_are_those_of_pytorch(
    vocabulary, units, rows, biased, dtype, device, supported, monkeypatch
):
    head, decoder = chains.random_head(monkeypatch, vocabulary, units, 16, biased, device)
    chain = Chain(head, CachedDecoder(decoder, dtype, backend=GraphBackend()))
    assert chain.on_cuda is not None
    plain = Chain(head, CachedDecoder(decoder, dtype, backend=TorchBackend()))
    states = torch.randn(2 * rows, LENGTH, 16, device=device).to(dtype)
    last = torch.randint(4, vocabulary, (2 * rows,), device=device)
    found = [chain.best(*each) for each in zip(states.split(rows), last.split(rows), strict=True)]
    expected = plain.best(states, last)
    chains.assert_follows(head, decoder, states, last, torch.cat(found), expected, 0.03)


@torch.no_grad()
def test_the_first_of_equal_scores_counts(device, supported, monkeypatch):
    """In one program or in several, and whatever the sign of the scores is."""
    head, decoder = chains.random_head(monkeypatch, 150, 20, device=device)
    torch.nn.init.zeros_(head.out.weight)
    torch.nn.init.zeros_(head.out.bias)
    states, last = torch.ones(1, 3, 16, device=device), torch.tensor([5], device=device)
    for others in (0.25, -0.75):
        for equal in ([149, 64, 63], [130, 7, 8], [149]):
            decoder.output_projection.weight.fill_(others)
            decoder.output_projection.weight[equal] = others + 0.5
            chain = Chain(head, CachedDecoder(decoder, backend=GraphBackend()))
            assert chain.on_cuda.best(states, last).tolist() == [[min(equal)] * 3]


@torch.no_grad()
def test_numbers_that_are_none_give_tokens(device, supported, monkeypatch):
    head, decoder = chains.random_head(monkeypatch, 150, 20, device=device)
    chain = Chain(head, CachedDecoder(decoder, backend=GraphBackend()))
    states, last = torch.randn(3, 4, 16, device=device), torch.tensor([5, 6, 7], device=device)
    expected = chain.best(states, last)
    states[1, 2] = torch.nan
    found = chain.best(states, last)
    assert found.min() >= 0 and found.max() < 150
    assert torch.equal(found[::2], expected[::2])


@torch.no_grad()
def test_tables_follow_the_weights(device, supported, monkeypatch):
    head, decoder = chains.random_head(monkeypatch, 150, 20, device=device)
    decoder.chain = head
    chain = Chain(head, CachedDecoder(decoder, backend=GraphBackend()))
    states, last = torch.randn(2, 4, 16, device=device), torch.tensor([5, 6], device=device)
    before = chain.best(states, last)
    for weight in (head.from_token.weight, head.from_chain.weight, head.out.weight):
        weight.neg_()
    chain.weights.update()
    chain.repack()
    fresh = Chain(head, CachedDecoder(decoder, backend=GraphBackend()))
    assert torch.equal(chain.best(states, last), fresh.best(states, last))
    assert not torch.equal(chain.best(states, last), before)


@torch.no_grad()
def test_more_rows_are_for_pytorch(device, supported, monkeypatch):
    head, decoder = chains.random_head(monkeypatch, 150, 20, device=device)
    chain = Chain(head, CachedDecoder(decoder, backend=GraphBackend()))
    calls = []
    monkeypatch.setattr(type(chain.on_cuda), "best", lambda self, *each: calls.append(each))
    for rows in (chain_cuda.ROWS, chain_cuda.ROWS + 1):
        states = torch.randn(rows, 2, 16, device=device)
        chain.best(states, torch.full((rows,), 5, device=device))
    assert len(calls) == 1


def never(*arguments):
    raise AssertionError("these weights are not for the kernels")


def test_what_they_cannot_do_is_for_pytorch(supported, monkeypatch):
    """Projections of a part of the symbols, and first heads."""
    monkeypatch.setattr(chain_cuda, "CudaChain", never)
    head, decoder = chains.random_head(monkeypatch, 40, 20)
    project = projection_by(made.random_clusters(4, 16, 40, 0.4))
    clustered = CachedDecoder(decoder, project=project, backend=GraphBackend())
    assert Chain(head, clustered).on_cuda is None
    decoder.first_head = torch.nn.Identity()
    assert Chain(head, CachedDecoder(decoder, backend=GraphBackend())).on_cuda is None


@torch.no_grad()
def test_tables_that_float16_cannot_hold_are_for_pytorch(device, supported, monkeypatch):
    head, decoder = chains.random_head(monkeypatch, 40, 20, device=device)
    head.from_chain.weight[3, 4] = 1e5
    assert Chain(head, CachedDecoder(decoder, backend=GraphBackend())).on_cuda is None


def test_where_they_fail_pytorch_computes(supported, monkeypatch, caplog):
    def failing(*arguments):
        raise RuntimeError("there is no compiler")

    monkeypatch.setattr(chain_cuda, "CudaChain", failing)
    head, decoder = chains.random_head(monkeypatch, 40, 20)
    with caplog.at_level(logging.WARNING):
        chain = Chain(head, CachedDecoder(decoder, backend=GraphBackend()))
    assert "chain head runs on PyTorch's operators" in caplog.text
    assert "there is no compiler" in caplog.text
    plain = Chain(head, CachedDecoder(decoder, backend=TorchBackend()))
    states, last = torch.randn(2, 3, 16), torch.tensor([5, 6])
    with torch.no_grad():
        assert torch.equal(chain.best(states, last), plain.best(states, last))


def test_on_a_cpu_nobody_looks_for_triton(monkeypatch):
    monkeypatch.setattr(chain_cuda, "CudaChain", never)
    head, decoder = chains.random_head(monkeypatch, 40, 20)
    assert Chain(head, CachedDecoder(decoder, backend=GraphBackend())).on_cuda is None
