"""Weights and features that are NaN or infinite: a sentence that names the tensor."""

import pytest
import torch

from specdec_plugin.engine import TorchBackend
from specdec_plugin.engine.weights import is_finite
from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat import mapping
from tests.support import checkpoints, methods, tiny
from tests.support.compiled import needs_kernels

WAYS = ["greedy", "certified", "beam", "self-draft", "chain", "joint heads", "hybrid-jacobi"]
NAMES = [
    "encoder.layers.0.fc1.weight",
    "decoder.layers.1.fc2.bias",
    "decoder.layers.0.self_attn_layer_norm.weight",
    "decoder.layers.1.encoder_attn.k_proj.weight",
]


def spoiled(way, name, value):
    model = methods.verifier(way)
    with torch.no_grad():
        dict(model.named_parameters())[name].view(-1)[3] = value
    return model


def decode(way, model, backend=None):
    return methods.generator(way, model, backend).generate([model], tiny.sample([4, 2]))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("way", WAYS)
def test_weights(way, name):
    part, _, rest = name.partition(".")
    side = {"encoder": "Encoder", "decoder": "Decoder"}[part]
    for value in (float("nan"), float("-inf")):
        with pytest.raises(PluginError, match=rf"^{rest} of the model's \w*{side}\w* has numbers"):
            decode(way, spoiled(way, name, value))


def test_on_pytorchs_operators():
    for name in NAMES[1:]:
        with pytest.raises(PluginError, match="has numbers that are NaN or infinite"):
            decode("greedy", spoiled("greedy", name, float("inf")), TorchBackend())


def test_large_numbers_are_finite():
    assert is_finite(torch.full((9,), 3e38)) and is_finite(torch.tensor([2**40]))
    assert not is_finite(torch.tensor([3e38, float("inf")]))
    assert decode("greedy", spoiled("greedy", NAMES[1], 1e30))


def test_weights_that_become_nan_between_two_batches():
    model = methods.verifier("greedy")
    generator = methods.generator("greedy", model)
    assert generator.generate([model], tiny.sample([4, 2]))
    with torch.no_grad():
        model.decoder.layers[0].fc1.weight[0, 0] = float("nan")
    for _ in range(2):
        with pytest.raises(PluginError, match=r"layers\.0\.fc1\.weight of the model's"):
            generator.generate([model], tiny.sample([4, 2]))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_weights_that_view_a_file(tmp_path, monkeypatch, dtype):
    monkeypatch.setattr(mapping, "MAPPED_FROM", 0)
    model = checkpoints.model().to(dtype)
    with torch.no_grad():
        model.decoder.layers[1].fc2.weight[1, 1] = float("inf")
    loaded = checkpoints.load(checkpoints.save(model, tmp_path / "model.pt"))
    with pytest.raises(PluginError, match=r"layers\.1\.fc2\.weight of the model's"):
        decode("greedy", loaded)


def test_features():
    model, sample = methods.verifier("greedy"), tiny.sample([4, 2])
    sample["net_input"]["src_tokens"] = torch.full((2, 5, 8), float("nan"))
    with pytest.raises(PluginError, match="src_tokens of a batch has features that are NaN"):
        methods.generator("greedy", model).generate([model], sample)


def test_half_precision_decodes():
    model = methods.verifier("greedy").half()
    (first, *_), _ = decode("greedy", model)
    assert torch.isfinite(first["positional_scores"]).all()
