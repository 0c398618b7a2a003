"""What fairseq saves is whole or absent."""

import errno
import resource
import shutil

import pytest
import torch
from fairseq.file_io import PathManager

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import save_whole
from specdec_plugin.fairseq_compat.saving import install_whole_copies


def test_copies_are_whole(tmp_path):
    (tmp_path / "new").write_text("new")
    assert PathManager.copy(str(tmp_path / "new"), str(tmp_path / "last"), overwrite=True)
    assert (tmp_path / "last").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "new"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_copy_that_ends_early_leaves_what_was_there(tmp_path, monkeypatch, error):
    def half(source, target):
        with open(target, "w") as file:
            file.write("ha")
        raise error

    (tmp_path / "new").write_text("new")
    (tmp_path / "last").write_text("old")
    monkeypatch.setattr(shutil, "copyfile", half)
    with pytest.raises(type(error)):
        PathManager.copy(str(tmp_path / "new"), str(tmp_path / "last"), overwrite=True)
    assert (tmp_path / "last").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last", "new"]


def test_installed_once():
    before = PathManager.copy
    install_whole_copies()
    assert PathManager.copy is before


def test_a_full_disk_leaves_what_was_there(tmp_path, monkeypatch):
    path = tmp_path / "file.pt"
    save_whole({"a": 1}, str(path))
    before = path.read_bytes()

    def full(file):
        raise OSError(errno.ENOSPC, "No space left")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(PluginError, match=r"file\.pt cannot be written \(No space left\)"):
        save_whole({"a": 2}, str(path))
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


def test_pytorchs_own_error_of_a_full_disk_is_told(tmp_path):
    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        with pytest.raises(PluginError, match=r"file\.pt cannot be written \(File too large\)"):
            save_whole({"a": torch.ones(10**5)}, str(tmp_path / "file.pt"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))
    assert [*tmp_path.iterdir()] == []
