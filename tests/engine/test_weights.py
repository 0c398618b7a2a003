"""When weights count as changed."""

import math

import pytest
import torch
from torch import nn

from specdec_plugin.engine import weights as weights_module
from specdec_plugin.engine.weights import Weights
from specdec_plugin.errors import PluginError


@pytest.fixture
def module():
    return nn.Linear(64, 64, bias=False)


def test_weights_at_an_address_that_was_used_before(module):
    """An allocator gives the memory of freed weights to others of their size."""
    weights = Weights.of(module)
    for _ in range(20):
        version = weights.version
        module.weight.data = torch.empty(0)  # nobody but the watch may hold the old ones now
        module.weight.data = torch.rand(64, 64)
        weights.update()
        assert weights.version == version + 1
        weights.update()
        assert weights.version == version + 1


def test_freed_weights_stay_as_they_are_packed(module):
    weights = Weights.of(module)
    version = weights.version
    weights.release(module)
    assert module.weight.numel() == 0
    module.train()
    weights.update()
    assert weights.version == version


def test_one_version_for_a_module(module):
    assert Weights.of(module) is Weights.of(module)
    assert Weights.of(nn.Linear(64, 64)) is not Weights.of(module)


def changed(weights, change):
    """Whether a change is seen, once."""
    version = weights.version
    change()
    weights.update()
    found = weights.version
    weights.update()
    assert weights.version == found <= version + 1
    return found > version


def test_each_change_counts():
    """In place, another parameter, other data, and none where there was one."""
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    weights = Weights.of(module)
    assert not changed(weights, lambda: None)
    with torch.no_grad():
        assert changed(weights, lambda: module[0].weight.add_(1))
    assert changed(weights, lambda: setattr(module[1], "weight", nn.Parameter(torch.rand(4, 4))))
    assert changed(weights, lambda: setattr(module[1].bias, "data", torch.rand(4)))
    assert changed(weights, lambda: setattr(module[1], "bias", None))


def test_a_pass_in_training_counts():
    """fairseq's optimizers change weights behind it, which PyTorch does not count."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).eval()
    weights, source = Weights.of(model), torch.rand(2, 4)
    assert not changed(weights, lambda: model(source))
    model.train()
    assert changed(weights, lambda: model(source))


def test_weights_that_view_a_file_are_looked_at_where_that_is_asked(module, monkeypatch):
    """Else all of the file would be read into memory."""
    monkeypatch.setattr(weights_module, "views_file", lambda weight: True)
    nn.init.constant_(module.weight, math.nan)
    weights = Weights.of(module)
    weights.check()
    with pytest.raises(PluginError, match="weight of the model's Linear has numbers that are NaN"):
        weights.check(mapped=True)


def test_weights_that_were_made_in_inference_mode():
    """PyTorch counts no change of them, but others in their place are seen."""
    with torch.inference_mode():
        module = nn.Linear(4, 4)
    weights = Weights.of(module)
    assert not changed(weights, lambda: None)
    assert changed(weights, lambda: setattr(module, "weight", nn.Parameter(torch.rand(4, 4))))
    with torch.no_grad():
        assert changed(weights, lambda: module.weight.add_(1))
