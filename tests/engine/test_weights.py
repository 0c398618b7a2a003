"""When weights count as changed."""

import pytest
import torch
from torch import nn

from specdec_plugin.engine.weights import Weights


@pytest.fixture
def module():
    return nn.Linear(64, 64, bias=False)


def test_weights_at_an_address_that_was_used_before(module):
    """An allocator gives the memory of freed weights to others of their size."""
    memory = bytearray(4 * 64 * 64)
    module.weight.data = torch.frombuffer(memory, dtype=torch.float32).view(64, 64)
    weights = Weights.of(module)
    version, address = weights.version, module.weight.data_ptr()
    module.weight.data = torch.frombuffer(memory, dtype=torch.float32).view(64, 64)
    assert module.weight.data_ptr() == address
    weights.look()
    assert weights.version == version + 1
    weights.look()
    assert weights.version == version + 1


def test_freed_weights_stay_as_they_are_packed(module):
    weights = Weights.of(module)
    version = weights.version
    weights.release(module)
    assert module.weight.numel() == 0
    module.train()
    weights.look()
    assert weights.version == version


def test_one_version_for_a_module(module):
    assert Weights.of(module) is Weights.of(module)
    assert Weights.of(nn.Linear(64, 64)) is not Weights.of(module)
