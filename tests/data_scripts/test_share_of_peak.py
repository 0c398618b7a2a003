"""data_scripts/share_of_peak.py: it counts the products that a model computes."""

import json

import pytest
import share_of_peak
import torch
from fairseq.modules import MultiheadAttention
from torch import nn

from tests.support import tiny
from tests.support.command_lines import Corpus


def test_operations_are_those_of_every_linear_map() -> None:
    model = tiny.model(encoder_layers=2)
    sample, spent = tiny.sample([5, 5]), []

    def note(module: nn.Linear, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        spent.append(2 * module.weight.numel() * inputs[0][..., 0].numel())

    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.register_forward_hook(note)
        elif isinstance(module, MultiheadAttention):
            module.prepare_for_onnx_export_()  # else it reads weights of its maps by itself
    with torch.no_grad():
        model.train()  # the encoder has a fused path for evaluation
        target = torch.full((2, 3), 5)
        net_input = sample["net_input"]
        model(net_input["src_tokens"], net_input["src_lengths"], target)
    found = share_of_peak.shapes_of(model, sources=12, fed=6)
    assert sum(found.values()) == pytest.approx(sum(spent))


def test_the_table(
    corpus: Corpus, tiny_verifier: str, tmp_path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr(share_of_peak, "ROWS", (2,))
    monkeypatch.setattr(share_of_peak, "SAMPLE", 1e4)
    output = tmp_path / "share.json"
    flags = ["-s", "en", "-t", "es", "--path", tiny_verifier, "--output", str(output)]
    before = torch.get_num_threads()
    try:
        share_of_peak.main([corpus.data_dir, *flags, "--repeats", "2", "--beams", "1", "2"])
    finally:
        torch.set_num_threads(before)
    found = json.loads(output.read_text())
    assert {"machine", "date", "command", "commit"} <= found.keys()
    one, two = found["rows"]
    assert (one["beams"], two["beams"]) == (1, 2) and len(one["seconds"]) == 2
    assert one["share"] > 0 and two["GFLOP in products"] > 0
    assert capsys.readouterr().out.count("\n| ") >= 4
