"""Factors of a projection that need no states."""

import torch

from specdec_plugin.vocab.low_rank import LowRank, factors


def low_rank_of(engine, rank, margin, dtype=torch.int8):
    """Factors of an engine's projection for any state, of this rank and with this margin."""
    weights, bias = engine.projection.float_weights()
    expand, down = factors(weights, torch.eye(weights.size(1)))
    found = LowRank(weights @ expand[:, :rank], down[:rank], bias, dtype)
    found.margin = margin
    return found
