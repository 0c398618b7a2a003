"""Parameters whose numbers stay in 16 bits are those of float32 for all who read or write them."""

import copy
import io
import pickle

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from specdec_plugin.engine import UncachedDecoder, build_engine, native
from specdec_plugin.engine.backend import NativeBackend, TorchBackend
from specdec_plugin.engine.linear import Linear, NativeLinear
from specdec_plugin.engine.native_layers import NativeLayers
from specdec_plugin.engine.spans import Spans
from specdec_plugin.engine.weights import Weights, is_finite
from specdec_plugin.fairseq_compat.held_in_half import (
    HeldInHalf,
    held_in_half,
    hold_none,
    in_half,
    memory_of,
    widened,
)
from tests.support import methods, tiny
from tests.support.compiled import needs_kernels

OUTPUTS, INPUTS = 24, 37


@pytest.fixture(params=[torch.float16, torch.bfloat16])
def half(request):
    torch.manual_seed(3)
    return torch.randn(OUTPUTS, INPUTS).to(request.param)


@pytest.fixture
def held(half):
    return held_in_half(half, requires_grad=True)


@pytest.fixture
def module(held):
    made = nn.Linear(INPUTS, OUTPUTS, bias=False)
    made._parameters["weight"] = held
    return made


def test_it_is_a_parameter_in_float32(held, half):
    assert isinstance(held, nn.Parameter) and held.requires_grad
    assert held.dtype == torch.float32 and held.shape == half.shape and held.is_contiguous()
    assert memory_of(held) is half and in_half(held) is half


@pytest.mark.parametrize(
    "read",
    [
        lambda weight: weight.detach(),
        lambda weight: weight.data,
        lambda weight: weight.to(torch.float32),
        lambda weight: weight.contiguous(),
        lambda weight: widened(weight),
        lambda weight: native.float_weight(weight),
        lambda weight: Linear.of([weight, weight], None, torch.float32).weight[:OUTPUTS],
        lambda weight: F.embedding(torch.arange(OUTPUTS), weight),
        lambda weight: weight.double(),
        lambda weight: weight.to(torch.float16, copy=True).float(),
    ],
)
def test_some_readers_leave_it_in_16_bits(held, half, read):
    found = read(held)
    assert in_half(held) is half
    assert torch.equal(found.to(half.dtype), half)


@pytest.mark.parametrize(
    "read",
    [
        lambda weight: weight + 0,
        lambda weight: weight.t().t(),
        lambda weight: torch.cat([weight, weight])[:OUTPUTS],
        lambda weight: F.linear(torch.eye(INPUTS), weight).t(),
        lambda weight: torch.from_numpy(weight.detach().numpy()),
        lambda weight: torch.tensor(weight.tolist()),
        lambda weight: weight.clone(),
    ],
)
def test_others_see_float32(held, half, read):
    found = read(held)
    assert found.dtype == torch.float32 and torch.equal(found, half.float())
    assert in_half(held) is None and torch.equal(memory_of(held), half.float())
    assert widened(held).data_ptr() == memory_of(held).data_ptr()


def test_an_address_is_that_of_float32(held, half):
    address = held.data_ptr()
    assert address == memory_of(held).data_ptr() == held.untyped_storage().data_ptr() != 0
    assert memory_of(held).dtype == torch.float32


def test_what_was_written_is_read_by_all(held, half):
    alias, version = held.detach(), held._version
    with torch.no_grad():
        assert held.add_(1) is held
        held[3, 5] = 7.0
    expected = half.float() + 1
    expected[3, 5] = 7.0
    assert held._version > version and in_half(held) is None
    for each in (held, alias):
        assert torch.equal(each.contiguous() + 0, expected)
        assert torch.equal(F.embedding(torch.tensor([3]), each), expected[3:4])
    assert torch.equal(half, half.clone())


def test_gradients_reach_it(module):
    module(torch.ones(2, INPUTS)).sum().backward()
    assert torch.equal(module.weight.grad, torch.full((OUTPUTS, INPUTS), 2.0))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_module_of_another_type_has_plain_parameters(module, half, dtype):
    module.to(dtype)
    assert type(module.weight) is nn.Parameter
    assert torch.equal(module.weight, half.to(dtype))


def test_a_module_of_the_same_type_keeps_it(module, held, half):
    module.float().cpu()
    assert module.weight is held and in_half(held) is half


def test_a_module_that_is_moved_has_plain_parameters(module):
    module.to("meta")
    assert type(module.weight) is nn.Parameter and module.weight.device.type == "meta"


def test_other_data_are_refused(held):
    with pytest.raises(RuntimeError, match="take no other data"):
        held.data = torch.zeros(OUTPUTS, INPUTS)


def test_another_state_may_be_loaded(module, held):
    weight = torch.randn(OUTPUTS, INPUTS)
    module.load_state_dict({"weight": weight})
    assert module.weight is held and torch.equal(held + 0, weight)


@pytest.mark.parametrize(
    "copied",
    [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))],
    ids=["deepcopy", "pickle"],
)
def test_a_copy_is_plain(module, half, copied):
    weight = copied(module).weight
    assert type(weight) is nn.Parameter and weight.requires_grad
    assert torch.equal(weight, half.float()) and in_half(module.weight) is half


def test_copies_of_many_parameters_are_not_confused():
    parts = [nn.Linear(4, 4) for _ in range(30)]
    model = hold(nn.Sequential(*parts, parts[0]), torch.float16)
    for copied in (copy.deepcopy(model).state_dict(), copy.deepcopy(model.state_dict())):
        for name, expected in model.state_dict().items():
            assert torch.equal(copied[name], memory_of(expected).float()), name
    again = copy.deepcopy(model)
    assert again[0].weight is again[30].weight


def test_a_file_has_float32(module, half):
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    weight = torch.load(file, weights_only=True)["weight"]
    assert type(weight) is torch.Tensor and torch.equal(weight, half.float())


def test_a_released_part_stays_as_it_is(module, half):
    Weights.of(module).release(module)
    assert in_half(module.weight) is half


def test_only_writes_and_replacements_are_changes(module, half):
    weights = Weights.of(module)
    version = weights.version
    module(torch.ones(1, INPUTS))  # takes float32 from now on
    weights.update()
    assert weights.version == version
    with torch.no_grad():
        module.weight.mul_(2)
    weights.update()
    assert weights.version == version + 1
    module._parameters["weight"] = held_in_half(half)
    weights.update()
    assert weights.version == version + 2


def test_writes_into_lists_are_changes(module, half):
    weights, others = Weights.of(module), [torch.ones(3), module.weight]
    version = weights.version
    with torch.no_grad():
        torch._foreach_add(others, 1.0)
        weights.update()
        assert weights.version == version
        torch._foreach_mul_(others, 2.0)
    weights.update()
    assert weights.version == version + 1
    assert torch.equal(module.weight + 0, 2 * half.float())


def test_what_inference_mode_reads_is_of_use_outside(module, half):
    with torch.inference_mode():
        module(torch.ones(1, INPUTS))
    module(torch.ones(1, INPUTS)).sum().backward()
    with torch.no_grad():
        module.weight.mul_(2)
    assert torch.equal(copy.deepcopy(module).weight, 2 * half.float())


def test_decoders_without_a_cache_have_plain_parameters():
    model = hold(tiny.model(), torch.float16)
    model.decoder.quant_noise = nn.Identity()  # which the engine with a cache does not know
    assert isinstance(build_engine(model.eval()), UncachedDecoder)
    assert {type(each) for each in model.parameters()} == {nn.Parameter}


def test_plain_parameters_are_tied_as_the_held_ones_were(held, half):
    parts = [nn.Linear(INPUTS, OUTPUTS, bias=False), nn.Embedding(OUTPUTS, INPUTS)]
    for part in parts:
        part.weight = held
    model = nn.Sequential(*parts)
    with torch.inference_mode():
        hold_none(model)
    assert type(parts[0].weight) is nn.Parameter and parts[0].weight is parts[1].weight
    assert parts[0].weight.requires_grad and not parts[0].weight.is_inference()
    assert torch.equal(parts[0].weight, half.float())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_numbers_that_are_not_finite_are_found(dtype, number):
    weights = torch.full((300, 400), 60_000.0).to(dtype)
    assert is_finite(weights) and is_finite(weights[:0])
    weights[17, 3] = number
    assert not is_finite(weights)


@needs_kernels
@pytest.mark.parametrize("outputs, inputs", [(1, 1), (24, 37), (530, 512), (300, 40)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.int4])
@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16])
def test_what_kernels_pack_is_what_they_pack_of_float32(outputs, inputs, dtype, kept):
    half = [torch.randn(outputs, inputs).to(kept), torch.randn(outputs, inputs).to(kept)]
    bias = [torch.randn(outputs), torch.randn(outputs)]
    held = [held_in_half(each) for each in half]
    found = NativeLinear(held, bias, dtype)
    expected = NativeLinear([each.float() for each in half], bias, dtype)
    vectors = torch.randn(3, inputs)
    assert found.bits == expected.bits and torch.equal(found(vectors), expected(vectors))
    assert all(in_half(each) is each.numbers.half is not None for each in held)


@needs_kernels
def test_weights_of_two_formats_are_packed_of_float32():
    half = [torch.randn(24, 37).half(), torch.randn(24, 37).bfloat16()]
    found = NativeLinear([held_in_half(each) for each in half], None, torch.float32)
    expected = NativeLinear([each.float() for each in half], None, torch.float32)
    vectors = torch.randn(3, 37)
    assert torch.equal(found(vectors), expected(vectors))


@needs_kernels
@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dim", [8, 12, 40])
def test_kernels_embed_what_is_held(kept, dim):
    model = tiny.model(encoder_embed_dim=dim, decoder_embed_dim=dim, share_all_embeddings=True)
    table = model.encoder.embed_tokens.weight.detach().to(kept)
    tokens = torch.tensor([[4, 7, 5, 2]])
    vectors = []
    for weight in (table.float(), held_in_half(table)):
        layers = NativeLayers(list(model.encoder.layers), None, torch.float32)
        layers.embed_with(weight, 1.5, None, None)
        vectors.append(layers.encode_rows(tokens, Spans.of(1, 4, None), None))
    assert torch.equal(*vectors)
    assert isinstance(weight, HeldInHalf) and in_half(weight) is table


def rounded(model, kept):
    """The model, whose parameters are rounded to 16 bits."""
    with torch.no_grad():
        for each in model.parameters():
            each.copy_(each.to(kept))
    return model


def hold(model, kept):
    """The same, and they are held so."""
    held = {each: held_in_half(each.detach().to(kept), True) for each in model.parameters()}
    for part in model.modules():
        for name, each in part._parameters.items():
            if each is not None:
                part._parameters[name] = held[each]
    return model


#: PyTorch's operators cannot draft with rounded weights.
ON_TORCH = [each for each in methods.METHODS if each not in ("self-draft", "relaxed")]


@pytest.mark.parametrize("kept", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "backend, method",
    [
        *((TorchBackend, each) for each in ON_TORCH),
        *(pytest.param(NativeBackend, each, marks=needs_kernels) for each in methods.METHODS),
    ],
)
def test_every_method_finds_the_same(backend, method, kept):
    held, found = hold(methods.verifier(method), kept), []
    for model in (rounded(methods.verifier(method), kept), held):
        torch.manual_seed(2)
        generator = methods.generator(method, model.eval(), backend=backend())
        found.append(generator.generate([model], tiny.sample([4, 7, 2])))
    for one, other in zip(*found, strict=True):
        for expected, hypothesis in zip(one, other, strict=True):
            assert torch.equal(expected["tokens"], hypothesis["tokens"])
            assert torch.equal(expected["positional_scores"], hypothesis["positional_scores"])
    if backend is NativeBackend:
        parts = (*held.encoder.layers, *held.decoder.layers, held.encoder.embed_tokens)
        assert all(in_half(each) is not None for part in parts for each in part.parameters())
