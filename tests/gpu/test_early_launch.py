"""On a GPU, kernels that begin before others end compute what they compute one after another."""

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, GraphBackend
from specdec_plugin.engine.early_launch import launch_options
from specdec_plugin.engine.fused import embedding, layers, projection
from tests.support.architectures import VOCABULARY, build_model, encode, moved

STEPS = 60


@torch.no_grad()
def test_a_chain_of_kernels_has_no_race(device, monkeypatch):
    """In calls, in captures and in their replays, for one vector and for more."""
    if not launch_options(device)["early"]:
        pytest.skip("kernels are not launched early on this device")
    model = build_model(decoder_embed_dim=256, encoder_embed_dim=256)
    encoded, decoder = moved(encode(model), device), model.decoder.to(device)
    early = CachedDecoder(decoder, backend=GraphBackend())
    for module in (embedding, layers, projection):
        monkeypatch.setattr(module, "launch_options", lambda device: {"early": False})
    late = CachedDecoder(decoder, backend=GraphBackend())
    states = [(each, each.start(encoded, STEPS)) for each in (early, late)]
    lengths = torch.zeros(3, dtype=torch.long, device=device)
    for step in range(STEPS):
        tokens = torch.randint(4, VOCABULARY, (3, 1 + step % 3), device=device)
        found, expected = (each.feed(state, tokens) for each, state in states)
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
        lengths = lengths + 1
        for _, state in states:
            state.keep(lengths, step + 1)
