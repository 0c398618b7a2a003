"""The 8-bit form of a projection: what it is rounded from, what bounds it, who shares it."""

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, native, output_projection
from specdec_plugin.engine.linear import NativeLinear
from specdec_plugin.vocab.prefilter import Prefilter
from tests.support import tiny
from tests.support.compiled import needs_kernels

pytestmark = needs_kernels


@pytest.mark.parametrize(
    "exact, kept",
    [
        (torch.float32, torch.float32),
        (torch.float32, torch.float16),
        (torch.float32, torch.bfloat16),
        (torch.bfloat16, torch.bfloat16),
    ],
)
@pytest.mark.parametrize("outputs,inputs", [(1, 1), (33, 40), (70, 17), (200, 64)])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int4, torch.bfloat16])
def test_weights_are_the_same_whether_rounded_from_a_tensor_or_from_packed_ones(
    outputs, inputs, dtype, exact, kept
):
    weight = torch.randn(outputs, inputs).to(kept).float()
    bias, states = torch.randn(outputs), torch.randn(5, inputs)
    packed = NativeLinear([weight], [bias], exact)
    direct = NativeLinear([weight], [bias], dtype)
    assert torch.equal(NativeLinear([weight], [bias], dtype, packed)(states), direct(states))


@pytest.mark.parametrize("model", [tiny.model(0), tiny.model(3)])
def test_the_bound_holds_for_each_symbol_and_is_hardly_greater(model):
    engine = CachedDecoder(model.decoder)
    bound = Prefilter(engine.projection).error_bound
    weight = model.decoder.output_projection.weight.detach().double()
    step = weight.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
    rounded = (weight / step).round() * step
    error, norm = float((weight - rounded).norm(dim=1).max()), float(rounded.norm(dim=1).max())
    assert error <= bound.weight_error <= 1.01 * error
    assert norm <= bound.weight_norm <= 1.02 * norm


@pytest.mark.parametrize("kept", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("outputs,inputs", [(1, 1), (33, 40), (200, 64)])
def test_the_mean_of_all_rows(outputs, inputs, kept):
    weight, bias = torch.randn(outputs, inputs).to(kept).float(), torch.randn(outputs)
    mean, exact = torch.empty(inputs + 1), NativeLinear([weight], [bias], torch.float32)
    for threads in (1, 3):
        native.library().mean_row_of(exact.handle, mean.data_ptr(), threads)
        torch.testing.assert_close(mean[:-1], weight.mean(0))
        torch.testing.assert_close(mean[-1], bias.mean())


def test_a_self_draft_and_a_prefilter_share_the_rounded_projection():
    model = tiny.model(0)
    engine = CachedDecoder(model.decoder)
    prefilter = Prefilter(engine.projection)
    copy = CachedDecoder(model.decoder, torch.int8)
    assert copy.projection.native is prefilter.rounded
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(2)
    copy.refresh()
    assert copy.projection.native is not prefilter.rounded
    states = torch.randn(3, copy.embedding.table.size(1))
    torch.testing.assert_close(copy.projection.native(states), 2 * prefilter.rounded(states))


def test_single_scores_are_read_from_the_models_own_weights_where_those_compute():
    model = tiny.model(0)
    weight = model.decoder.output_projection.weight
    rows = Prefilter(CachedDecoder(model.decoder).projection).weights
    assert rows.data_ptr() == weight.data_ptr()
    assert Prefilter(CachedDecoder(model.decoder, torch.bfloat16).projection).weights is None


def test_a_mapped_file_is_not_read_for_single_scores(monkeypatch):
    model = tiny.model(0)
    monkeypatch.setattr(output_projection, "views_file", lambda weight: True)
    assert Prefilter(CachedDecoder(model.decoder).projection).weights is None
