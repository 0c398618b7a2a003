"""Files that programs write are whole or absent; a sentence tells what cannot be written."""

import errno
import os
import stat
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.checkpoints import save_whole
from specdec_plugin.outputs import alone, check_output, same_file, write_text, written_whole


@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_an_error_leaves_what_was_there(tmp_path, error):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(type(error)), written_whole(str(path)) as unfinished:
        with open(unfinished, "w") as file:
            file.write("ne")
        raise error
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]
    with written_whole(str(path)) as unfinished, open(unfinished, "w") as file:
        file.write("new")
    assert path.read_text() == "new" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_the_mode_of_the_file_before_stays(tmp_path, mode):
    path = tmp_path / "file"
    path.write_text("old")
    path.chmod(mode)
    with written_whole(str(path)) as unfinished:
        assert stat.S_IMODE(os.stat(unfinished).st_mode) & ~mode & 0o077 == 0  # from the beginning
        with open(unfinished, "w") as file:
            file.write("new")
    assert path.read_text() == "new" and stat.S_IMODE(path.stat().st_mode) == mode


def test_names_of_one_file(tmp_path):
    one, other, link = (str(tmp_path / name) for name in ("one", "other", "link"))
    os.symlink("one", link)
    assert same_file(one, other, link) and not same_file(one, other)  # none is there yet
    (tmp_path / "one").touch()
    os.link(one, other)
    assert same_file(one, other) and same_file(one, f"{tmp_path}/./one")


def test_a_link_stays_and_its_file_is_written(tmp_path):
    (tmp_path / "link").symlink_to("file")
    with written_whole(str(tmp_path / "link")) as unfinished, open(unfinished, "w") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_a_pipe_is_no_file(tmp_path):
    """A device neither: a file would take its place."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(PluginError, match=f"{path} is not a file, and may not become one"):
            with written_whole(str(path)):
                raise AssertionError
    assert os.listdir(tmp_path) == ["pipe"] and not (tmp_path / "pipe").is_file()


def test_two_writers_at_once(tmp_path):
    """Each has a file of its own, and no reader finds a part of one."""
    path = tmp_path / "file"
    with written_whole(str(path)) as slow, open(slow, "w") as first:
        first.write("one, and ")
        with written_whole(str(path)) as quick, open(quick, "w") as second:
            second.write("two")
        assert path.read_text() == "two"
        first.write("more")
    assert path.read_text() == "one, and more" and os.listdir(tmp_path) == ["file"]


def test_many_writers_at_once(tmp_path):
    path = tmp_path / "file"
    texts = [f"{number}" * 100_000 for number in range(4)]
    found = set()

    def write(text):
        for _ in range(20):
            with written_whole(str(path)) as unfinished, open(unfinished, "w") as file:
                file.write(text)
            found.add(path.read_text())

    with ThreadPoolExecutor(len(texts)) as pool:
        list(pool.map(write, texts))
    assert found <= {*texts} and os.listdir(tmp_path) == ["file"]


def test_what_a_kill_leaves_is_removed_by_the_next_writer(tmp_path):
    path, old = tmp_path / "file", time.time() - 3600
    others = [tmp_path / name for name in ("file.backup.tmp", "file2.0123456789abcdef.tmp")]
    left = tmp_path / "file.0123456789abcdef.tmp"
    for each in (left, *others):
        each.touch()
        os.utime(each, (old, old))
    young = tmp_path / "file.fedcba9876543210.tmp"
    young.touch()
    with written_whole(str(path)) as slow:
        os.utime(slow, (old, old))  # it has not been written to for long, but its writer lives
        with written_whole(str(path)) as unfinished:
            assert os.path.exists(slow) and os.path.exists(unfinished)
    assert not left.exists() and young.exists() and all(each.exists() for each in others)


@pytest.mark.parametrize("mode, found", [(None, 0o640), (0o600, 0o600), (0o644, 0o644)])
def test_who_may_read_it(tmp_path, mode, found):
    before = os.umask(0o027)
    try:
        with written_whole(str(tmp_path / "file"), mode) as unfinished:
            assert stat.S_IMODE(os.stat(unfinished).st_mode) == found  # from the beginning
            with open(unfinished, "w") as file:
                file.write("text")
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "file").st_mode) == found


@pytest.mark.parametrize("name", ["folder", "file/x"])
def test_a_checkpoint_that_cannot_be_written(tmp_path, name):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(PluginError, match=f"{name} cannot be written"):
        save_whole({}, str(tmp_path / name))
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_outputs_that_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for good, folder in (("file", False), ("new", False), ("a/b/new", False), ("folder", True),
                         ("folder/a/b", True)):  # fmt: skip
        check_output(good, folder)
    for bad, folder, words in (
        ("folder", False, "--output folder is a folder. Name a file."),
        ("file", True, "--output file is a file. Name a folder."),
        ("file/a/b", True, "--output file/a/b cannot be written (Not a directory). Choose another"),
        ("file/a", False, "--output file/a cannot be written (Not a directory). Choose another"),
    ):
        with pytest.raises(PluginError) as caught:
            check_output(bad, folder)
        assert str(caught.value).startswith(words)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc, where nothing can be made")
def test_a_place_where_nothing_can_be_made():
    with pytest.raises(PluginError, match=r"^/proc/none/x cannot be written"):
        save_whole({}, "/proc/none/x")


def test_a_place_without_permission(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(PluginError, match=r"cannot be written \(Permission denied\)"):
        check_output(str(tmp_path / "x"), option="--states-dir")


def test_a_text_is_written_whole(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_text(str(path), "é\n")
    assert path.read_bytes() == "é\n".encode()

    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(PluginError, match=r"file cannot be written \(No space left on device\)"):
        write_text(str(path), "new")
    assert path.read_text("utf-8") == "é\n" and os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", [errno.ENOSYS, errno.ENOLCK])
def test_a_system_without_locks_is_told(kind, tmp_path, monkeypatch, caplog):
    def unable(descriptor, operation):
        raise OSError(kind, os.strerror(kind))

    monkeypatch.setattr("fcntl.flock", unable)
    with alone(str(tmp_path), "merged"), alone(str(tmp_path), "merged"):
        assert caplog.text.count("cannot be locked here") == 2


def test_a_lock_that_fails_is_told(tmp_path, monkeypatch):
    def unable(descriptor, operation):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("fcntl.flock", unable)
    with pytest.raises(PluginError, match="cannot be written \\(Input/output error\\)"):
        alone(str(tmp_path), "merged").__enter__()
