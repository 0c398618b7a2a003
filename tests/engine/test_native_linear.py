"""Products with packed weights against PyTorch's, in every format and with odd sizes."""

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from specdec_plugin.engine import native
from specdec_plugin.engine.linear import NativeLinear
from specdec_plugin.engine.spans import Spans

SIZES = [(1, 1), (33, 16), (64, 30), (23, 65), (7, 3)]
ROWS = [1, 2, 3, 5, 12, 14, 15, 30]


@pytest.fixture(autouse=True, params=[1, 2, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def rounded_to_levels(matrix):
    """Rows rounded to 255 levels each: whole numbers and the steps between them."""
    step = matrix.abs().amax(1, keepdim=True) / 127
    return (matrix / step).round(), step


@pytest.mark.parametrize("outputs, inputs", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_float32(outputs, inputs, rows):
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)
    vectors = torch.randn(rows, inputs)
    found = NativeLinear([weight], [bias], torch.float32)(vectors)
    torch.testing.assert_close(found, F.linear(vectors, weight, bias), atol=1e-5, rtol=1e-5)


def converts_float16():
    """Whether these kernels have the processor's instructions for it."""
    return native.library().linear_instructions() > 0


def in_full(weight, bias):
    """The map whose weights take 32 bits, because 16 do not hold those of one more output."""
    more = torch.full((1, weight.size(1)), 1 + 2**-20)
    linear = NativeLinear([weight, more], [bias, torch.zeros(1)], torch.float32)
    assert linear.bits == 32
    return lambda vectors: linear(vectors)[:, :-1]


@pytest.mark.parametrize("outputs, inputs", [*SIZES, (530, 512), (64, 1024)])
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16])
def test_weights_that_16_bits_hold_take_16_bits_and_give_the_same_products(
    outputs, inputs, rows, kept
):
    weight, bias = torch.randn(outputs, inputs).to(kept).float(), torch.randn(outputs)
    vectors = torch.randn(rows, inputs)
    linear = NativeLinear([weight], [bias], torch.float32)
    assert linear.bits == 16 or (kept == torch.float16 and not converts_float16())
    assert torch.equal(linear(vectors), in_full(weight, bias)(vectors))


@given(
    number=st.floats(width=32, allow_nan=False, allow_infinity=False)
    | st.floats(width=16, allow_nan=False, allow_infinity=False),
    output=st.integers(0, 69),
    place=st.integers(0, 18),
    kept=st.sampled_from([torch.float16, torch.bfloat16]),
)
@example(65504.0, 36, 18, torch.float16)  # the greatest of float16
@example(65505.0, 36, 18, torch.float16)
@example(2.0**-24, 0, 0, torch.float16)  # the least of float16
@example(2.0**-25, 0, 0, torch.float16)
@example(1 + 2.0**-11, 69, 0, torch.float16)
@example(2.0**-133, 16, 5, torch.bfloat16)  # the least of bfloat16
@example(2.0**-134, 16, 5, torch.bfloat16)
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_16_bits_are_taken_where_they_hold_each_number(number, output, place, kept):
    weight = torch.randn(70, 19).clamp(-4, 4).to(kept).float()
    weight[output, place] = number
    linear = NativeLinear([weight], None, torch.float32)
    held = [torch.bfloat16] + [torch.float16] * converts_float16()
    fits = any(torch.equal(weight.to(each).float(), weight) for each in held)
    assert linear.bits == (16 if fits else 32)
    assert torch.equal(linear(torch.eye(19)), weight.t())


@pytest.mark.parametrize("outputs, inputs", [(530, 512), (512, 1024), (40, 512)])
@pytest.mark.parametrize("rows", [8, 9, 14, 31])
def test_inputs_that_would_share_few_sets_of_the_cache(outputs, inputs, rows):
    weight, vectors = torch.randn(outputs, inputs), torch.randn(rows, inputs)
    found = NativeLinear([weight], None, torch.float32)(vectors)
    torch.testing.assert_close(found, F.linear(vectors, weight), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("outputs, inputs", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_bfloat16_rounds_weights_and_inputs_only(outputs, inputs, rows):
    weight, vectors = torch.randn(outputs, inputs), torch.randn(rows, inputs)
    found = NativeLinear([weight], None, torch.bfloat16)(vectors)
    expected = F.linear(vectors.bfloat16().float(), weight.bfloat16().float())
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("outputs, inputs", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_int8_rounds_weights_and_inputs_to_levels(outputs, inputs, rows):
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)
    vectors = torch.randn(rows, inputs)
    found = NativeLinear([weight], [bias], torch.int8)(vectors)
    (levels, step), (own, own_step) = rounded_to_levels(weight), rounded_to_levels(vectors)
    expected = F.linear(own, levels) * own_step * step.t() + bias
    # A level may be rounded the other way where it lies half-way between two.
    assert (found - expected).abs().max() < 0.03 * expected.abs().max().clamp(min=1)
    assert (found - expected).abs().median() < 1e-4


@pytest.mark.parametrize("outputs, inputs", SIZES)
@pytest.mark.parametrize("rows", ROWS)
def test_int4_rounds_weights_to_sixteen_levels(outputs, inputs, rows):
    weight, bias = torch.randn(outputs, inputs), torch.randn(outputs)
    linear = NativeLinear([weight], [bias], torch.int4)
    kept = (linear(torch.eye(inputs)) - bias).t()  # the weights as they were rounded
    step = kept.abs().masked_fill(kept.abs() < 1e-6, math.inf).amin(1, keepdim=True)
    places = kept / step  # whole numbers, or whole multiples of what the least weight is
    best = torch.full((outputs, 1), math.inf)
    for level in range(1, 9):
        levels = places * level
        wrong = (levels - levels.round()).abs().amax(1, keepdim=True)
        above = levels.amax(1, keepdim=True).clamp(min=0)
        below = -levels.amin(1, keepdim=True).clamp(max=0)
        # One side of zero has 8 levels, and the other one 7.
        many = torch.maximum(above, below).gt(8.1) | (above + below).gt(15.1)
        best = torch.minimum(best, wrong + many)
    assert best.max() < 1e-3
    greatest = weight.gather(1, weight.abs().argmax(1, keepdim=True)) / -8
    plain = (weight / greatest).round().clamp(-8, 7) * greatest
    wrong = (plain - weight).square().sum(1)
    assert ((kept - weight).square().sum(1) <= wrong * (1 + 1e-4) + 1e-9).all()

    vectors = torch.randn(rows, inputs)
    own, own_step = rounded_to_levels(vectors)
    expected = F.linear(own * own_step, kept, bias)
    found = linear(vectors)
    assert (found - expected).abs().max() < 0.03 * expected.abs().max().clamp(min=1)
    assert (found - expected).abs().median() < 1e-4


def test_sixteen_levels_lose_less_than_fifteen():
    weight = torch.randn(64, 256)
    kept = NativeLinear([weight], None, torch.int4)(torch.eye(256)).t()
    widest, lost = weight.abs().amax(1, keepdim=True) / 7, []
    for cut in range(12, 21):
        step = widest * cut / 20
        lost.append(((weight / step).round().clamp(-7, 7) * step - weight).square().sum(1))
    assert (kept - weight).square().sum() < 0.95 * torch.stack(lost).amin(0).sum()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int4])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_sums_of_the_greatest_levels_are_exact(dtype, rows):
    weight = torch.ones(40, 64) * torch.where(torch.arange(40) % 3 > 0, 1.0, -1.0).unsqueeze(1)
    vectors = torch.ones(rows, 64)
    vectors[1::2] = -1
    vectors[2:] *= torch.where(torch.arange(64) % 4 > 0, 1.0, -1.0)
    found = NativeLinear([weight], None, dtype)(vectors)
    torch.testing.assert_close(found, F.linear(vectors, weight), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int4])
def test_nothing_is_the_bias(dtype):
    bias = torch.randn(5)
    found = NativeLinear([torch.zeros(5, 8)], [bias], dtype)(torch.zeros(2, 8))
    assert torch.equal(found, bias.expand(2, -1))


@pytest.mark.parametrize("dtype", [torch.int8, torch.int4])
@pytest.mark.parametrize("of_weights", [1e-45, 1e-40, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("of_inputs", [1e-45, 1e-40, 1e-37, 1e-3, 1e7])
def test_the_smallest_and_great_numbers(dtype, of_weights, of_inputs):
    weight, vectors = torch.full((3, 40), of_weights), torch.full((2, 40), of_inputs)
    found, exact = NativeLinear([weight], None, dtype)(vectors), F.linear(vectors, weight)
    # Levels of numbers that are too small for a step of normal size are all zero.
    lost = 40 * max(1e-37 * of_weights, 1e-37 * of_inputs)
    torch.testing.assert_close(found, exact, rtol=0.01, atol=lost)


def test_several_maps_side_by_side():
    weights, biases = [torch.randn(6, 8), torch.randn(3, 8)], [torch.randn(6), torch.randn(3)]
    vectors = torch.randn(4, 8)
    found = NativeLinear(weights, biases, torch.float32)(vectors)
    each = [F.linear(vectors, *both) for both in zip(weights, biases, strict=True)]
    torch.testing.assert_close(found, torch.cat(each, dim=1))


@pytest.mark.parametrize("never", [-1, 0, 17])
@pytest.mark.parametrize("rows", [1, 5])
def test_scores(rows, never):
    weight, vectors = torch.randn(37, 16) * 3, torch.randn(rows, 16)
    values, normalisers = NativeLinear([weight], None, torch.float32).scores(vectors, never)
    expected = F.linear(vectors, weight)
    torch.testing.assert_close(normalisers, expected.logsumexp(1), atol=1e-5, rtol=1e-6)
    if never >= 0:
        expected[:, never] = -torch.inf
    torch.testing.assert_close(values, expected, atol=1e-5, rtol=1e-5)


def test_scores_that_are_far_apart():
    """Exponentials far below the smallest number are zero, and nothing overflows on the way."""
    weight, inputs = torch.randn(70, 24), 1e4 * torch.randn(3, 24)
    scores, normalisers = NativeLinear([weight], None, torch.float32).scores(inputs, -1)
    expected = inputs @ weight.t()
    torch.testing.assert_close(scores, expected, atol=0.1, rtol=1e-5)
    torch.testing.assert_close(normalisers, expected.logsumexp(1), atol=0.1, rtol=1e-5)


def test_strided_and_half_inputs():
    weight, vectors = torch.randn(9, 8), torch.randn(8, 6)
    linear = NativeLinear([weight], None, torch.float32)
    torch.testing.assert_close(linear(vectors.t()), F.linear(vectors.t(), weight))
    half = vectors.t().bfloat16()
    torch.testing.assert_close(linear(half), F.linear(half.float(), weight))


@pytest.mark.parametrize("lengths", [[1], [7], [5, 5, 5], [3, 0, 9, 1], [120, 130, 7]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8])
def test_rows_of_a_source_have_their_outputs_by_vector_and_part(lengths, dtype):
    count, heads, size, inputs = 4, 3, 5, 33
    linear = NativeLinear([torch.randn(count * heads * size, inputs)], None, dtype)
    begins = torch.arange(len(lengths)) % 3
    padded = torch.randn(inputs, len(lengths), max(lengths) + 2).permute(1, 2, 0)
    at, begin = torch.arange(max(lengths) + 2), begins.unsqueeze(1)
    padding = (at < begin) | (at >= begin + torch.tensor(lengths).unsqueeze(1))
    real = [
        padded[row, begin : begin + n]
        for row, (begin, n) in enumerate(zip(begins, lengths, strict=True))
    ]
    flat = linear(torch.cat(real)).view(-1, count, heads, size)
    spans = Spans.of(*padding.shape, padding)
    assert spans.lengths.tolist() == lengths
    found = linear.by_vector(padded, spans, count, heads)
    rows = [each.permute(1, 2, 0, 3) for each in flat.split(lengths)]
    wanted = torch.cat([each.flatten(1) for each in rows], dim=1)
    assert torch.equal(found, wanted)
