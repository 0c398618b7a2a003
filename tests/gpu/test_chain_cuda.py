"""On a GPU, Triton's kernels of a chain head choose what PyTorch's operators choose."""

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, GraphBackend, TorchBackend
from specdec_plugin.engine.graphs.rows_function import RowsFunction
from specdec_plugin.methods.block_nat.chain import Chain
from specdec_plugin.methods.block_nat.chain_cuda import CudaChain
from tests.gpu.conftest import DEVICE
from tests.support import chains

LENGTH = 10
#: On a CPU, products of halves are rounded to halves.
TYPES = [torch.float32] if DEVICE == "cpu" else [torch.float32, torch.float16]


@pytest.mark.parametrize("rows", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "vocabulary, units, dim, biased", [(7912, 512, 256, False), (3001, 300, 64, True)]
)
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@torch.no_grad()
def test_kernels_and_operators_agree(
    rows, vocabulary, units, dim, biased, dtype, device, monkeypatch
):
    """In calls, and in the graph of the third and later ones."""
    torch.manual_seed(1)
    head, decoder = chains.random_head(monkeypatch, vocabulary, units, dim, biased, device)
    chain = Chain(head, CachedDecoder(decoder, dtype, backend=GraphBackend()))
    assert chain.on_cuda is not None or device.type == "cpu"
    plain = Chain(head, CachedDecoder(decoder, dtype, backend=TorchBackend()))
    calls, best = [], CudaChain.best
    monkeypatch.setattr(CudaChain, "best", lambda *each: (calls.append(1), best(*each))[1])
    run, seen = RowsFunction(device), []
    for _ in range(12):
        states = torch.randn(rows, LENGTH, dim, device=device).to(dtype)
        last = torch.randint(4, vocabulary, (rows,), device=device)
        direct = chain.best(states, last)
        (captured,) = run("best", lambda *each: [chain.best(*each)], states, last)
        assert torch.equal(direct, captured)
        seen.append((states, last, direct, plain.best(states, last)))
    tolerance = 0.2 if dtype == torch.float16 else 0.05
    chains.assert_follows(head, decoder, *map(torch.cat, zip(*seen, strict=True)), tolerance)
    # The graph is captured once, and replayed without a call.
    assert len(calls) == (0 if chain.on_cuda is None else 14)
