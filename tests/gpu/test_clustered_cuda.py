"""On a GPU, Triton's kernels of the clustered projection find what PyTorch's operators find."""

import pytest
import torch

from specdec_plugin.engine import GraphBackend, TorchBackend
from specdec_plugin.engine.graphs.rows_function import RowsFunction
from specdec_plugin.vocab.clustered_linear import ClusteredLinear
from tests.gpu.conftest import DEVICE
from tests.support import made

SYMBOLS, CLUSTERS = 20_000, 40
#: On a CPU, products of halves are rounded to halves.
TYPES = [torch.float32] if DEVICE == "cpu" else [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("rows", [1, 8, 33, 160])
@pytest.mark.parametrize("dim, with_bias", [(100, True), (512, False), (1024, True)])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_kernels_and_operators_agree(rows, dim, dtype, with_bias, device):
    """In calls, and in the graph of the third."""
    torch.manual_seed(1)
    clusters = made.random_clusters(CLUSTERS, dim, SYMBOLS, 0.1, always=[2, 3], never=[1])
    weight = (torch.randn(SYMBOLS, dim, device=device) * dim**-0.5).to(dtype)
    bias = torch.randn(SYMBOLS, device=device).to(dtype) if with_bias else None
    exact = None if bias is None else bias.float()
    kernels = ClusteredLinear(weight, bias, clusters, GraphBackend())
    assert kernels.on_cuda or device.type == "cpu"
    plain = ClusteredLinear(weight.float(), exact, clusters, TorchBackend())
    run = RowsFunction(device)
    for _ in range(3):
        near = torch.randint(CLUSTERS, (rows,))
        inputs = clusters.centroids[near].float() + 0.1 * torch.randn(rows, dim)
        inputs = inputs.to(device, dtype)
        values, normalisers, tokens, log_probabilities = run(
            "both", lambda each: [*kernels.scores(each, 3), *kernels.best(each, 1.0, 3)], inputs
        )
        expected = plain.scores(inputs.float(), 3)
        torch.testing.assert_close((values, normalisers), expected, atol=1e-4, rtol=1e-4)
        best = values.gather(1, tokens.unsqueeze(1)).squeeze(1)
        torch.testing.assert_close(log_probabilities, best - normalisers, atol=1e-4, rtol=1e-5)
        assert torch.equal(tokens, values.argmax(1))
