"""When weights count as changed."""

import copy
import math
import pickle

import pytest
import torch
from fairseq.optim.adam import Adam
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


def test_a_part_that_replaces_another_one_has_other_weights():
    """Whoever packs from now on reads it; others keep what they read."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    before = Weights.of(model)
    model[1] = nn.Linear(4, 4)
    now = Weights.of(model)
    assert now is not before and now is Weights.of(model)
    with torch.no_grad():
        model[1].weight.add_(1)
    version = now.version
    now.update()
    assert now.version == version + 1


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


def optimizer_of(*modules):
    """fairseq's, whose steps PyTorch does not count; and gradients for it."""
    parameters = [each for module in modules for each in module.parameters()]
    for each in parameters:
        each.grad = torch.ones_like(each)
    return Adam(parameters, lr=0.1)


@pytest.mark.parametrize("training", [True, False])
def test_a_step_of_an_optimizer_counts(training):
    """Also where weights were compared between a pass in training mode and the step."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)).train(training)
    weights, source = Weights.of(model), torch.rand(2, 4)
    optimizer = optimizer_of(model)
    for _ in range(2):
        assert not changed(weights, lambda: model(source))
        assert changed(weights, optimizer.step)


def test_a_step_counts_for_the_weights_that_it_may_have_written(module):
    """Those of a frozen teacher, or of another model, are not packed again."""
    other, frozen = nn.Linear(4, 4), nn.Linear(4, 4).requires_grad_(False)
    all_of_them = [Weights.of(each) for each in (module, other, frozen)]
    versions = [each.version for each in all_of_them]
    optimizer_of(module).step()
    for each in all_of_them:
        each.update()
    assert [each.version for each in all_of_them] == [versions[0] + 1, *versions[1:]]
    optimizer_of(copy.deepcopy(module)).step()  # as in half precision
    for each in all_of_them:
        each.update()
    assert [each.version for each in all_of_them] == [versions[0] + 2, *versions[1:]]


def test_a_step_counts_for_those_that_read_a_module_before_a_part_was_added():
    module = nn.Sequential(nn.Linear(4, 4))
    before = Weights.of(module)
    module.add_module("probe", nn.Linear(4, 4))
    after = Weights.of(module)
    assert after is not before and Weights.of(module) is after
    optimizer = optimizer_of(module)
    assert changed(before, optimizer.step) and changed(after, optimizer.step)


def test_a_model_whose_weights_are_packed_is_pickled_and_scripted(module):
    model = nn.Sequential(module)
    Weights.of(model)
    source = torch.rand(2, 64)
    for other in (pickle.loads(pickle.dumps(model)), torch.jit.script(model)):
        assert other(source).equal(model(source))


def test_weights_that_view_a_file_are_looked_at_where_that_is_asked(module, monkeypatch):
    """Else all of the file would be read into memory."""
    monkeypatch.setattr(weights_module, "views_file", lambda weight: True)
    nn.init.constant_(module.weight, math.nan)
    weights = Weights.of(module)
    weights.check()
    with pytest.raises(PluginError, match=r"^weight of the model's Linear has numbers"):
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
