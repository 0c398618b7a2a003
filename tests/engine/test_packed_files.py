"""Packed weights beside a checkpoint: later runs map them, and never those of other weights."""

import os
import sys

import pytest
import torch

from specdec_plugin.decoding.acceptance import TopBeta
from specdec_plugin.decoding.generator import ParallelGenerator
from specdec_plugin.decoding.lengths import Lengths
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import build_engine, native, packed_files
from specdec_plugin.engine.linear import NativeLinear
from specdec_plugin.fairseq_compat import mapping
from tests.support import checkpoints, tiny

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or native.library() is None, reason="needs Linux and the kernels"
)


@pytest.fixture(autouse=True)
def every_file_is_large(monkeypatch):
    monkeypatch.setattr(mapping, "MAPPED_FROM", 0)
    monkeypatch.setattr(packed_files, "_folders", {})


@pytest.fixture
def path(tmp_path):
    return checkpoints.save(checkpoints.model(), tmp_path / "model.pt")


@pytest.fixture(
    params=[
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float16),
        (torch.bfloat16, torch.bfloat16),
    ]
)
def any_path(tmp_path, request):
    """A checkpoint of numbers of one type, in a file of another."""
    numbers, file = request.param
    return checkpoints.save(checkpoints.model().to(numbers).to(file), tmp_path / "model.pt")


@pytest.fixture
def packed(monkeypatch):
    """Counts what is packed anew."""
    counts, pack = [], NativeLinear._pack

    def counted(*args):
        counts.append(1)
        return pack(*args)

    monkeypatch.setattr(NativeLinear, "_pack", counted)
    return counts


def decoded(model):
    """The output of greedy decoding with a certified projection."""
    statistics = Statistics()
    verifier = Verifier([build_engine(model)], statistics, certified=True)
    loop = DecodingLoop(None, VerifiedStep(verifier, TopBeta()), statistics)
    lengths = Lengths(max_positions=model.max_decoder_positions(), max_len_b=9)
    generator = ParallelGenerator([model], checkpoints.SYMBOLS, loop, statistics, lengths)
    found = generator.generate([model], tiny.sample([4, 2], 3, 500))
    return [rows[0]["tokens"].tolist() for rows in found]


def run(path, keeps=False):
    """What a process does: the model, and its output."""
    packed_files._folders.clear()
    model = checkpoints.load(path)
    if keeps:
        packed_files.keep([model])
    return model, decoded(model)


def kept(path):
    return sorted(os.listdir(f"{path}.packed"))


def test_later_runs_map_what_was_packed(any_path, packed):
    _, expected = run(any_path, keeps=True)
    files = kept(any_path)
    assert packed_files.KEY in files and len(files) == len(packed) + 1
    packed.clear()
    model, found = run(any_path)
    assert found == expected and not packed
    assert checkpoints.pages_in_memory(model.decoder.layers[0].fc1.weight) == 0
    assert kept(any_path) == files and found == run_in_memory(model)


def test_nothing_is_kept_unless_asked_for(path):
    run(path)
    assert not os.path.exists(f"{path}.packed")


def test_changed_weights_are_packed_again(any_path, packed):
    run(any_path, keeps=True)
    packed_files._folders.clear()
    model = checkpoints.load(any_path)
    decoded(model)
    packed.clear()
    with torch.no_grad():
        for parameter in model.decoder.parameters():
            parameter.add_(torch.randn_like(parameter))
    assert decoded(model) == run_in_memory(model) and packed


def run_in_memory(model):
    """The output of a copy of a model that views no file."""
    copied = checkpoints.model()
    copied.load_state_dict(model.state_dict())
    return decoded(copied.eval())


def test_another_checkpoint_of_the_same_path(path, packed):
    run(path, keeps=True)
    other = checkpoints.model(7)
    os.unlink(path)
    checkpoints.save(other, path)
    packed.clear()
    _, found = run(path)
    assert found == decoded(other.eval()) and packed
    run(path, keeps=True)
    packed.clear()
    assert run(path)[1] == found and not packed


def test_another_checkpoint_of_the_same_path_in_one_process(path, packed):
    run(path, keeps=True)
    other, before = checkpoints.model(7), checkpoints.load(path)
    expected = decoded(before)
    checkpoints.save(other, f"{path}.new")
    os.replace(f"{path}.new", path)
    packed.clear()
    assert decoded(checkpoints.load(path)) == decoded(other.eval()) and packed
    assert decoded(before) == expected


@pytest.mark.parametrize("keeps", [True, False])
def test_a_checkpoint_that_was_removed_since(path, keeps):
    """The model still views what was mapped of it."""
    _, expected = run(path, keeps)
    packed_files._folders.clear()
    model = checkpoints.load(path)
    os.unlink(path)
    assert decoded(model) == expected


def test_other_kernels_have_other_names_in_the_same_folder(path, monkeypatch):
    run(path, keeps=True)
    model = checkpoints.load(path)
    weight = model.decoder.layers[0].fc1.weight
    ours = packed_files.Place.of([weight], "form")
    packed_files._folders.clear()
    monkeypatch.setattr(packed_files, "identity", lambda: "other kernels")
    theirs = packed_files.Place.of([weight], "form")
    assert ours.folder.path == theirs.folder.path and ours.name != theirs.name
    theirs.folder.keep()
    assert kept(path) == [packed_files.KEY]


def test_without_kernels_what_is_kept_stays(path, monkeypatch, caplog):
    run(path, keeps=True)
    files = kept(path)
    packed_files._folders.clear()
    monkeypatch.setattr(packed_files, "identity", lambda: None)
    packed_files.keep([checkpoints.load(path)])
    assert kept(path) == files and len(files) > 1
    assert "no effect without native kernels" in caplog.text


def test_a_file_that_was_cut_is_not_used(path, packed):
    _, expected = run(path, keeps=True)
    for name in kept(path):
        if name != packed_files.KEY:
            os.truncate(f"{path}.packed/{name}", 8)
    packed.clear()
    assert run(path)[1] == expected and packed


def test_a_folder_that_others_can_write_to_is_not_read(path, packed, caplog):
    _, expected = run(path, keeps=True)
    os.chmod(f"{path}.packed", 0o777)
    packed.clear()
    assert run(path)[1] == expected and packed
    assert "others can write there" in caplog.text


def test_without_room_decoding_continues(path, monkeypatch, caplog):
    library = native.library()

    class Full:
        def __getattr__(self, name):
            return (lambda *args: 0) if name == "linear_save" else getattr(library, name)

    monkeypatch.setattr(native, "library", Full)
    _, found = run(path, keeps=True)
    assert kept(path) == [packed_files.KEY]
    assert caplog.text.count("packed weights are not kept") == 1
    monkeypatch.undo()
    assert decoded(checkpoints.load(path)) == found


def test_a_checkpoint_that_is_not_mapped(path, monkeypatch, caplog):
    monkeypatch.setattr(mapping, "MAPPED_FROM", 1 << 30)
    run(path, keeps=True)
    assert "--keep-packed-weights has no effect here" in caplog.text
