import pytest
import torch
import torch.nn.functional as F

from specdec_plugin.engine import linear
from specdec_plugin.engine.linear import Linear


@pytest.mark.parametrize("outputs, inputs", [(5, 7), (7, 5), (1100, 1000)])
@pytest.mark.parametrize("rows", [1, 2, 9])
@pytest.mark.parametrize("with_bias", [True, False])
@pytest.mark.parametrize("packs", [True, False])
def test_is_the_plain_product(outputs, inputs, rows, with_bias, packs, monkeypatch):
    if not packs:
        monkeypatch.setattr(linear, "_pack", lambda weight: None)
    weight, given = torch.randn(outputs, inputs), torch.randn(rows, inputs)
    bias = torch.randn(outputs) if with_bias else None
    before = given.clone()
    torch.testing.assert_close(
        Linear(weight, bias)(given), F.linear(given, weight, bias), atol=1e-3, rtol=1e-5
    )
    assert torch.equal(given, before)


def test_a_build_without_the_packed_layout(monkeypatch):
    def missing(weight):
        raise AttributeError("no such operator")

    monkeypatch.setattr(torch.ops.mkldnn, "_reorder_linear_weight", missing)
    weight, given = torch.randn(5, 7), torch.randn(3, 7)
    product = Linear(weight)
    assert product._packed is None
    torch.testing.assert_close(product(given), given @ weight.t())


def test_works_in_inference_mode():
    product = Linear(torch.randn(5, 7))
    given = torch.randn(3, 7)
    outside = product(given)
    with torch.inference_mode():
        assert torch.equal(product(given), outside)
