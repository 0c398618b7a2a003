"""Parameters are views of the checkpoint's file, and what is packed leaves memory."""

import mmap
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from fairseq import checkpoint_utils
from torch import nn

from specdec_plugin.engine import CachedDecoder
from specdec_plugin.engine.encoder import FastEncoder
from specdec_plugin.engine.native_layers import NativeLayers
from specdec_plugin.fairseq_compat import mapping
from specdec_plugin.fairseq_compat.held_in_half import in_half
from specdec_plugin.fairseq_compat.mapping import forget_pages, mapped_models, views_file
from tests.support import checkpoints, tiny
from tests.support.compiled import needs_kernels

SYMBOLS, SIZES = checkpoints.SYMBOLS, checkpoints.SIZES
architecture, load, save = checkpoints.architecture, checkpoints.load, checkpoints.save
pages_in_memory, task_of = checkpoints.pages_in_memory, checkpoints.task_of


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """But where a test says otherwise."""
    monkeypatch.setattr(mapping, "MAPPED_FROM", 0)


linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is in memory")


@pytest.fixture(scope="module")
def made():
    """A model whose matrices have several pages."""
    return tiny.model(symbols=SYMBOLS, **SIZES)


@pytest.fixture(scope="module")
def path(made, tmp_path_factory: pytest.TempPathFactory) -> str:
    return save(made, tmp_path_factory.mktemp("mapped") / "model.pt")


def file_of(parameter):
    """The file that is mapped where a parameter is; '' for other memory."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(each, 16) for each in line.split()[0].split("-"))
        if begin <= parameter.data_ptr() < end:
            return line[73:].strip()
    raise AssertionError


def assert_equal(model, expected):
    found, wanted = model.state_dict(), expected.state_dict()
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert torch.equal(found[name], value), name


@linux
def test_parameters_view_the_file(made, path):
    model = load(path)
    assert_equal(model, made)
    assert {file_of(each) for each in model.parameters()} == {path}
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight
    assert all(each.requires_grad for each in model.parameters())


@linux
def test_without_decoding_nothing_changes(made, path):
    torch.manual_seed(5)
    tiny.model(symbols=SYMBOLS, **SIZES)  # draws what fairseq draws
    model = load(path, None)
    assert_equal(model, made)
    assert {file_of(each) for each in model.parameters()} & {path} == set()


def test_random_numbers_are_those_of_fairseq_without_decoding(path):
    states = []
    for loading in (lambda: load(path, None), lambda: _load_by_fairseq(path)):
        torch.manual_seed(5)
        loading()
        states.append(torch.get_rng_state())
    assert torch.equal(*states)


def _load_by_fairseq(path):
    original = checkpoint_utils.load_model_ensemble_and_task.__wrapped__
    return original([path], task=tiny.task(SYMBOLS))


@linux
def test_packed_weights_leave_memory_and_come_back(made, path):
    model = load(path)
    reason = NativeLayers.unsupported(
        list(model.decoder.layers), CachedDecoder(model.decoder).backend, torch.float32
    )
    if reason is not None:
        pytest.skip(reason)
    engines = (
        CachedDecoder(model.decoder),
        FastEncoder(model.encoder, CachedDecoder(made.decoder).backend),
    )
    engines[1].refresh()
    large = [each for each in model.parameters() if each.nbytes >= 3 * mmap.PAGESIZE]
    assert len(large) > 10 and not any(map(pages_in_memory, large))
    assert_equal(model, made)
    assert all(map(pages_in_memory, large))


@linux
def test_what_was_written_stays(path):
    model = load(path)
    weight = model.decoder.layers[0].fc1.weight
    other = model.decoder.layers[1].fc1.weight
    before = other.detach().clone()
    weight.data.view(-1)[weight.numel() // 2] = 7.0  # PyTorch counts no such write
    forget_pages(model)
    assert weight.view(-1)[weight.numel() // 2] == 7.0 and torch.equal(other, before)
    assert pages_in_memory(other) and pages_in_memory(weight)


@linux
def test_only_mapped_memory_is_forgotten(made, path):
    model = load(path)
    for parameter in model.parameters():
        parameter.data = parameter.data.clone()
    forget_pages(model)
    assert_equal(model, made)


@linux
def test_a_small_file_is_read_and_not_copied(made, path, monkeypatch):
    monkeypatch.setattr(mapping, "MAPPED_FROM", 1 << 30)
    copied, copy = [], nn.Module._load_from_state_dict

    def note(module, state, *rest):
        copy(module, state, *rest)
        own = dict(module.named_parameters(recurse=False))
        copied.extend(
            each.data_ptr() != state[rest[0] + name].data_ptr() for name, each in own.items()
        )

    monkeypatch.setattr(nn.Module, "_load_from_state_dict", note)
    model = load(path)
    assert copied and not any(copied)
    assert {file_of(each) for each in model.parameters()} & {path} == set()
    forget_pages(model)
    assert_equal(model, made)


@pytest.mark.parametrize("zipped", [True, False])
def test_other_checkpoints_load(made, tmp_path: Path, zipped):
    half = tiny.model(symbols=SYMBOLS, **SIZES)
    half.load_state_dict(made.state_dict())
    other = save(half.half(), tmp_path / "half.pt", _use_new_zipfile_serialization=zipped)
    model = load(other)
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert_equal(model, half.float())
    forget_pages(model)
    assert_equal(model, half)


@pytest.fixture(params=[torch.float16, torch.bfloat16])
def rounded(made, request):
    model = tiny.model(symbols=SYMBOLS, **SIZES)
    model.load_state_dict(made.state_dict())
    return model.to(request.param)


def matrices_and_biases(model):
    """Parameters of parts that the kernels pack."""
    packed = (each for each in model.modules() if isinstance(each, (nn.Linear, nn.Embedding)))
    return [each for part in packed for each in part.parameters()]


@linux
def test_half_precision_is_held_in_the_file(rounded, tmp_path: Path):
    model = load(save(rounded, tmp_path / "half.pt"))
    held = matrices_and_biases(model)
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert {file_of(in_half(each)) for each in held} == {str(tmp_path / "half.pt")}
    assert model.decoder.output_projection.weight is model.encoder.embed_tokens.weight
    assert all(each.requires_grad for each in held) and all(map(views_file, held))
    assert_equal(model, rounded.float())  # which reads them
    assert not any(map(views_file, held))


@linux
@needs_kernels
def test_packed_weights_of_half_precision_leave_memory(rounded, tmp_path: Path):
    model = load(save(rounded, tmp_path / "half.pt"))
    CachedDecoder(model.decoder)
    layers = model.decoder.layers
    large = [each for each in layers.parameters() if 2 * each.numel() > 3 * mmap.PAGESIZE]
    assert len(large) == 4 and not any(map(pages_in_memory, large))
    assert all(map(views_file, matrices_and_biases(model)))
    forget_pages(model)
    assert_equal(model, rounded.float())


@linux
def test_where_there_is_a_gpu_half_precision_is_copied(rounded, tmp_path: Path, monkeypatch):
    """What was copied leaves memory."""
    forgotten, forget = {}, mapping._forget

    def note(address, size):
        forgotten[address] = size
        forget(address, size)

    monkeypatch.setattr(mapping, "_forget", note)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    model = load(save(rounded, tmp_path / "half.pt"))
    assert {type(each) for each in model.parameters()} == {nn.Parameter}
    assert sum(forgotten.values()) == 2 * sum(each.numel() for each in rounded.parameters())
    assert_equal(model, rounded.float())


@linux
def test_without_decoding_half_precision_is_copied(rounded, tmp_path: Path):
    model = load(save(rounded, tmp_path / "half.pt"), None)
    assert {type(each) for each in model.parameters()} == {nn.Parameter}
    assert_equal(model, rounded.float())


def test_float64_is_copied(made, tmp_path: Path):
    double = tiny.model(symbols=SYMBOLS, **SIZES)
    double.load_state_dict(made.state_dict())
    model = load(save(double.double(), tmp_path / "double.pt"))
    assert {type(each) for each in model.parameters()} == {nn.Parameter}
    assert_equal(model, double.float())


def test_a_lost_parameter_is_refused(made, tmp_path: Path):
    state = torch.load(save(made, tmp_path / "model.pt"), weights_only=True)
    del state["model"]["decoder.layers.0.fc1.weight"]
    torch.save(state, tmp_path / "lost.pt")
    with pytest.raises(Exception, match="does not hold the weights"):
        load(str(tmp_path / "lost.pt"))


def test_torch_is_left_as_it_was(path):
    before = torch.load, nn.Module.load_state_dict
    with pytest.raises(ValueError), mapped_models():
        raise ValueError
    assert before == (torch.load, nn.Module.load_state_dict)
    weight = nn.Linear(40, 40).weight
    assert weight.std() > 0.01  # drawn


@linux
def test_other_threads_read_as_ever(path):
    """Also by the file's name, which the loading thread may do, too."""
    with mapped_models(), ThreadPoolExecutor(1) as others:
        read = others.submit(torch.load, path, weights_only=True).result()["model"]
        own = torch.load(path, weights_only=True)["model"]
    assert {file_of(each) for each in read.values()} & {path} == set()
    assert {file_of(each) for each in own.values()} == {path}
    for name, weights in read.items():
        assert torch.equal(weights, own[name])


def test_nothing_is_drawn():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    with mapped_models():
        tiny.TransformerModel.build_model(architecture(), task_of("greedy"))
    assert torch.equal(torch.get_rng_state(), before)


def parts():
    """Some parts that a model may have, of which two share a weight."""
    made = nn.ModuleDict(
        {
            "lstm": nn.LSTM(5, 7),
            "norm": nn.LayerNorm(5),
            "first": nn.Linear(5, 7),
            "second": nn.Linear(5, 7),
            "bilinear": nn.Bilinear(5, 5, 7),
        }
    )
    made["second"].weight = made["first"].weight
    made["second"].bias = made["bilinear"].bias
    return made


def state_of(path):
    return torch.load(str(path), weights_only=True)["model"]


@linux
def test_parts_of_other_types_have_parameters_of_their_own(tmp_path: Path):
    """An LSTM has its weights in a list, too."""
    half = parts().half()
    torch.save({"model": half.state_dict()}, tmp_path / "parts.pt")
    with mapped_models():
        made = parts()
        made.load_state_dict(state_of(tmp_path / "parts.pt"))
    held = {name for name, each in made.named_parameters() if views_file(each)}
    assert held == {"first.weight", "first.bias"}
    assert made["second"].weight is made["first"].weight
    assert made["second"].bias is made["bilinear"].bias
    assert {type(each) for each in made["lstm"]._flat_weights} == {nn.Parameter}
    inputs = torch.randn(3, 2, 5)
    assert torch.equal(made["lstm"](inputs)[0], half.float()["lstm"](inputs)[0])
    assert_equal(made, half)


@linux
@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
def test_of_two_states_the_later_one_counts(tmp_path: Path, dtype, zipped):
    """Such as those of a pretrained encoder and of the model."""
    torch.save({"model": parts().half().state_dict()}, tmp_path / "pretrained.pt")
    later = parts().to(dtype)
    options = {"_use_new_zipfile_serialization": zipped}
    torch.save({"model": later.state_dict()}, tmp_path / "later.pt", **options)
    with mapped_models():
        made = parts()
        for each in ("pretrained.pt", "later.pt"):
            made.load_state_dict(state_of(tmp_path / each))
    assert_equal(made, later.float())


@linux
def test_of_two_names_of_a_parameter_the_later_one_counts(tmp_path: Path):
    state = parts().half().state_dict()
    state["second.weight"] = torch.full((7, 5), 2.0)
    torch.save({"model": state}, tmp_path / "parts.pt")
    with mapped_models():
        made = parts()
        made.load_state_dict(state_of(tmp_path / "parts.pt"))
    assert made["first"].weight is made["second"].weight
    assert torch.equal(made["first"].weight, state["second.weight"])


@linux
def test_what_is_copied_outside_of_a_state_is_copied(tmp_path: Path):
    torch.save({"model": parts().half().state_dict()}, tmp_path / "parts.pt")
    with mapped_models(), torch.no_grad():
        state, made = state_of(tmp_path / "parts.pt"), nn.Linear(5, 7)
        made.weight.copy_(state["first.weight"])
    assert type(made.weight) is nn.Parameter
    assert torch.equal(made.weight, state["first.weight"].float())


@linux
def test_what_is_read_in_float32_leaves_the_file(rounded, tmp_path: Path):
    model = load(save(rounded, tmp_path / "half.pt"))
    weight = model.decoder.layers[0].fc1.weight
    half = in_half(weight)
    assert half.sum().isfinite() and pages_in_memory(half)
    assert (weight + 0).dtype == torch.float32 and not pages_in_memory(half)


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path):
    """What was loaded of it is in the model, as without mapping."""
    state = parts().half().state_dict()
    del state["norm.weight"]
    torch.save({"model": state}, tmp_path / "parts.pt")
    with mapped_models():
        made = parts()
        with pytest.raises(RuntimeError, match="Missing key"):
            made.load_state_dict(state_of(tmp_path / "parts.pt"))
    assert torch.equal(made["first"].weight + 0, state["first.weight"].float())
    assert torch.equal(made["bilinear"].weight, state["bilinear.weight"].float())
