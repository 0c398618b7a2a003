import pytest
import torch
import torch.nn.functional as F

from specdec_plugin.engine import linear
from specdec_plugin.engine.linear import Linear


@pytest.mark.parametrize("outputs, inputs", [(5, 7), (7, 5), (300, 500), (500, 300), (1100, 1000)])
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
    monkeypatch.setattr(linear, "SMALL", 0)
    weight, given = torch.randn(5, 7), torch.randn(3, 7)
    torch.testing.assert_close(Linear(weight)(given), given @ weight.t())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_other_dtypes(dtype, monkeypatch):
    monkeypatch.setattr(linear, "SMALL", 0)
    weight, bias = torch.randn(30, 20, dtype=dtype), torch.randn(30, dtype=dtype)
    product = Linear(weight, bias)
    for rows in (1, 3):
        given = torch.randn(rows, 20, dtype=dtype)
        expected = given.double() @ weight.double().t() + bias.double()
        assert product(given).dtype == dtype
        torch.testing.assert_close(product(given).double(), expected, atol=0.1, rtol=0.01)


def test_works_in_inference_mode(monkeypatch):
    monkeypatch.setattr(linear, "SMALL", 0)
    product = Linear(torch.randn(5, 7))
    given = torch.randn(3, 7)
    outside = product(given)
    with torch.inference_mode():
        assert torch.equal(product(given), outside)
