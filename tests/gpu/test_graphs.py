"""On a GPU, what is done often is replayed, and gives what operators give one by one."""

import torch

from specdec_plugin.engine import GraphBackend, TorchBackend
from specdec_plugin.engine.graphs.capture import Graphs
from tests.gpu.test_identity import batch, on_cpu, placed
from tests.support import methods as ways
from tests.support.conformance import SETTINGS
from tests.support.naive import assert_same_but_for_ties

SETTING = SETTINGS["plain"]
WAYS = ["greedy", "self-draft", "chain", "block-nat", "beam"]


def decoded(way, backend, device):
    """The best hypotheses of some batches, one after another."""
    model = placed(way, SETTING, device)
    ours = ways.generator(way, model, backend, SETTING.options(), drafter_dtype=None)
    return [
        [rows[0] for rows in on_cpu(ours.generate([model], batch(size, SETTING.words, device)))]
        for size in (1, 3, 8, 3, 1) * 2
    ]


def test_graphs_are_replayed(device, monkeypatch, caplog):
    captured = []
    capture = Graphs.capture

    def count(self, work):
        captured.append(capture(self, work))
        return captured[-1]

    monkeypatch.setattr(Graphs, "capture", count)
    for way in WAYS:
        captured.clear()
        found = decoded(way, GraphBackend(), device)
        expected = decoded(way, TorchBackend() if way != "self-draft" else GraphBackend(), device)
        if device.type == "cuda":
            assert captured and None not in captured, (way, caplog.text)
        model = placed(way, SETTING, torch.device("cpu"))
        for size, mine, theirs in zip((1, 3, 8, 3, 1) * 2, found, expected, strict=True):
            sample = batch(size, SETTING.words, torch.device("cpu"))
            assert_same_but_for_ties(model, sample, mine, theirs, **SETTING.limits())
