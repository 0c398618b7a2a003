"""Checks of weights that are deferred until a GPU has work; on a CPU, by the same code."""

from unittest import mock

import pytest
import torch

from specdec_plugin.decoding import captured_iterations
from specdec_plugin.decoding.captured_iterations import CapturedIterations
from specdec_plugin.decoding.static_rows import AHEAD
from specdec_plugin.engine import GraphBackend, NativeBackend
from specdec_plugin.engine.graphs.tables import Tables
from specdec_plugin.engine.weights import DeferredChecks, StaleWeightsError, Weights, check_deferred
from specdec_plugin.methods.beam.search import BeamSearch
from tests.support import methods as ways
from tests.support import tiny
from tests.support.compiled import needs_kernels
from tests.support.search import assert_same, reference

#: A method that decodes without the host, one with a drafter, one that returns, and a search.
WAYS = ["greedy", "chain", "lookup", "beam"]


def generator(method, model):
    """A generator as on a GPU."""
    options = {"beam": 3 if method == "beam" else 1, "max_len_b": 20}
    return ways.generator(method, model, GraphBackend(), options)


def change(model, factor=0.3):
    """Other weights, in place."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight + factor * torch.randn_like(weight))


def first(ours, model, sample):
    return [row[0] for row in ours.generate([model], sample)]


@pytest.mark.parametrize("method", WAYS)
def test_new_weights_are_read_and_counted_once(method):
    model, sample = tiny.model(7), tiny.sample([4, 2], 1)
    ours, tokens = generator(method, model), 0
    for turn in range(1, 4):
        found = first(ours, model, sample)
        if method != "beam":
            assert_same(found, reference([model], sample, max_len_b=20))
        assert_same(found, first(generator(method, model), model, sample))
        tokens += sum(len(each["tokens"]) for each in found)
        counted = ours.statistics
        assert (counted.sentences, counted.batches, counted.tokens) == (2 * turn, turn, tokens)
        change(model)


@pytest.mark.parametrize("swap", [lambda model: model.double(), lambda model: model.bfloat16()])
def test_weights_of_another_type(swap):
    """Stale weights may fail with new ones, which is no failure of the new ones."""
    model, sample = tiny.model(7), tiny.sample([4, 2], 1)
    ours = generator("greedy", model)
    first(ours, model, sample)
    swap(model)
    assert_same(first(ours, model, sample), first(generator("greedy", model), model, sample))


@pytest.mark.parametrize("ahead", [None, 1], ids=["many", "as many as are queued"])
def test_the_device_works_before_weights_are_checked(monkeypatch, ahead):
    """Weights are checked once there is nothing to queue any more, each of them once."""
    model, sample = tiny.model(7), tiny.sample([4], 1)
    ours = generator("chain", model)
    for _ in range(3):  # until nothing is built any more
        expected = first(ours, model, sample)
    events, run = [], captured_iterations._Run
    if ahead is not None:
        monkeypatch.setattr(ours.loop.gate, "ahead", lambda: ahead)
    monkeypatch.setattr(run, "_queue", noting(events, "queued", run._queue))
    monkeypatch.setattr(Tables, "pop", noting(events, "waited", Tables.pop))
    monkeypatch.setattr(Weights, "update", noting(events, "checked", Weights.update))
    assert_same(first(ours, model, sample), expected)
    checks = events.count("checked")
    assert checks == 4  # encoder and decoder of the model, and of the drafter
    first_wait = events.index("waited")
    queued = first_wait - checks
    assert events[:first_wait] == ["queued"] * queued + ["checked"] * checks and queued == 1 + AHEAD


def noting(events, name, work):
    def noted(self, *given):
        events.append(name)
        return work(self, *given)

    return noted


def test_other_errors_pass(monkeypatch):
    model, sample = tiny.model(7), tiny.sample([4], 1)
    ours = generator("greedy", model)
    calls = []

    def fails(*_):
        calls.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr(CapturedIterations, "repeat", fails)
    with pytest.raises(ZeroDivisionError):
        first(ours, model, sample)
    assert len(calls) == 1


def test_what_moved_is_told_again():
    """Whoever asks at the end knows what an earlier question found."""
    module = torch.nn.Linear(2, 2)
    weights = Weights.of(module)
    with DeferredChecks() as deferred:
        deferred.add(weights)
        check_deferred()
        with torch.no_grad():
            module.weight.add_(1)
        deferred.add(weights)
        with pytest.raises(StaleWeightsError):
            check_deferred()
        assert deferred.stale()
    check_deferred()  # Nothing is deferred any more.
    assert not DeferredChecks().stale()


@needs_kernels
def test_on_a_cpu_weights_are_checked_first():
    model, sample = tiny.model(7), tiny.sample([4], 1)
    ours = ways.generator("greedy", model, NativeBackend(), {"max_len_b": 20})
    assert_same(first(ours, model, sample), reference([model], sample, max_len_b=20))
    assert not ours._defers_checks


def test_a_search_is_decoded_again(monkeypatch):
    """It notices before its first step."""
    model, sample = tiny.model(7), tiny.sample([4], 1)
    ours = generator("beam", model)
    first(ours, model, sample)
    runs = []
    decode = BeamSearch.decode
    monkeypatch.setattr(BeamSearch, "decode", noting(runs, "decoded", decode))
    first(ours, model, sample)
    assert len(runs) == 1
    change(model)
    first(ours, model, sample)
    assert len(runs) == 3


def test_a_change_that_somebody_else_saw_first():
    """Such as another generator of the same model, in another thread."""
    module = torch.nn.Linear(2, 2)
    weights = Weights.of(module)
    with DeferredChecks() as deferred:
        deferred.add(weights)
        with torch.no_grad():
            module.weight.add_(1)
        Weights.of(module)
        assert deferred.stale()


def test_one_inside_another():
    with DeferredChecks() as outer:
        with DeferredChecks() as inner:
            assert inner is not outer
        outer.add(Weights.of(torch.nn.Linear(2, 2)))
        check_deferred()
        assert outer._waiting == []


def test_a_table_of_other_sizes_is_checked_first():
    """Beyond the end of the one that was packed, a GPU would read what is no vector."""
    model = tiny.model(7)
    ours = generator("greedy", model)
    sample = tiny.sample([4, 2], 1)
    first(ours, model, sample)
    for module in (model.encoder, model.decoder):
        weight = module.embed_tokens.weight
        more = torch.cat([weight, weight.new_ones(3, weight.size(1))])
        module.embed_tokens.weight = torch.nn.Parameter(more.detach())
    sample["net_input"]["src_tokens"][0, 0] = model.encoder.embed_tokens.weight.size(0) - 1
    with DeferredChecks(), mock.patch.object(DeferredChecks, "add") as add:
        encoded = ours._encoders[0](sample["net_input"])
        ours.loop.step.verifier.engines[0].refresh()
    assert not add.called
    with torch.no_grad():
        expected = model.encoder.forward_torchscript(sample["net_input"])
    real = sample["net_input"]["src_tokens"].ne(1).t()
    torch.testing.assert_close(encoded["encoder_out"][0][real], expected["encoder_out"][0][real])
