"""What a drafter is fed by a kernel of Triton, against PyTorch's operators.

Without a GPU it is interpreted, if TRITON_INTERPRET=1 was set before PyTorch was imported.
"""

import pytest
import torch

from specdec_plugin.engine import GraphBackend, TorchBackend
from specdec_plugin.methods.block_nat.drafter import NATDrafter
from tests.support.drafters import K, drafter_model
from tests.support.kernels import run_kernels


@pytest.fixture
def device(monkeypatch):
    """Where the kernels run."""
    return run_kernels(monkeypatch)


@torch.no_grad()
@pytest.mark.parametrize("learned", [False, True])
def test_a_block_is_fed_as_by_pytorch(learned, device):
    model = drafter_model("causal", decoder_learned_pos=learned).to(device)
    vocabulary = model.decoder.embed_tokens.num_embeddings
    inputs = torch.randint(4, vocabulary, (3, 12), device=device)
    # The last row has ended: all its tokens were fed.
    inputs = torch.cat([inputs, inputs[1:2]])
    held, lengths = torch.tensor([[0, 2, 7, 7], [0, 6, 9, 6]], device=device)
    found = []
    for backend in (GraphBackend, TorchBackend):
        drafter = NATDrafter(model, K, backend=backend())
        drafter.engine.embedding.reach(10, 6 + K)
        found.append(drafter.arranged(inputs, lengths, held, 6))
    mine, theirs = found
    for row, count in enumerate((1, 5, 3)):  # behind a row's masks, anything is fed
        used = count + K
        torch.testing.assert_close(mine.embedded[row, :used], theirs.embedded[row, :used])
        assert torch.equal(mine.limits[row, :used], theirs.limits[row, :used])
    assert torch.equal(mine.where[:3], theirs.where[:3])
    assert mine.newest.tolist() == inputs.gather(1, lengths.unsqueeze(1)).flatten().tolist()
