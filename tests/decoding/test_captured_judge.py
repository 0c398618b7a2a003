"""Which iterations are judged in one call; the conformance suite shows what comes of it."""

import pytest
import torch

from specdec_plugin.decoding.captured_judge import CapturedJudge
from specdec_plugin.engine import GraphBackend, TorchBackend
from tests.support import methods as ways
from tests.support import tiny
from tests.support.search import assert_same, reference


def iterations(monkeypatch, backend=None, **options):
    """(judged in one call, all) iterations of a batch, whose hypotheses are fairseq's."""
    options = {"max_len_b": 30, **options}
    unkpen = options.get("unkpen", 0)
    model, sample = tiny.model(1), tiny.sample([3, 6, 1, 4], 5)
    calls = []
    emission = CapturedJudge.emission

    def count(self, fed, draft, rows):
        calls.append(fed.size(1))
        return emission(self, fed, draft, rows)

    monkeypatch.setattr(CapturedJudge, "emission", count)
    ours = ways.generator("greedy", model, backend or GraphBackend(), options)
    ours.loop.keep_history = True  # so that iterations return to Python
    steps = []
    take = ours.loop.step.take

    def counted(rows, draft):
        steps.append(1)
        return take(rows, draft)

    monkeypatch.setattr(ours.loop.step, "take", counted)
    found = [row[0] for row in ours.generate([model], sample)]
    options = {name: value for name, value in options.items() if name != "unkpen"}
    if unkpen == 0:
        assert_same(found, reference([model], sample, **options))
    return len(calls), len(steps)


def test_all_but_the_first_and_the_last_steps(monkeypatch):
    """The minimum length may apply to the first one, and the limit to the last one."""
    judged, steps = iterations(monkeypatch, min_len=1)
    assert judged >= steps - 2 > 10


def test_a_minimum(monkeypatch):
    judged, steps = iterations(monkeypatch, min_len=12)
    assert 0 < judged <= steps - 12


@pytest.mark.parametrize("unkpen", [0.0, 0.5])
def test_a_penalty(monkeypatch, unkpen):
    judged, _ = iterations(monkeypatch, unkpen=unkpen)
    assert (judged > 0) == (unkpen == 0)


def test_operators_one_by_one_elsewhere(monkeypatch):
    judged, steps = iterations(monkeypatch, TorchBackend())
    assert judged == 0 < steps


def test_new_weights_are_read():
    model, sample = tiny.model(7), tiny.sample([4, 2], 1)
    ours = ways.generator("greedy", model, GraphBackend(), {"max_len_b": 20})
    for _ in range(3):
        found = [row[0] for row in ours.generate([model], sample)]
        assert_same(found, reference([model], sample, max_len_b=20))
        with torch.no_grad():
            for weight in model.decoder.parameters():
                weight.copy_(weight + 0.3 * torch.randn_like(weight))
