"""Compiling the kernels: once, whole or not at all, and never required."""

import errno
import logging
import os
import shutil
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from specdec_plugin.engine import CachedDecoder, choose_backend, native
from specdec_plugin.engine.native import build, interface
from specdec_plugin.errors import PluginError
from tests.support.architectures import (
    build_model,
    encode,
    feed_in_steps,
    full_logits,
    random_tokens,
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def compiler_that(tmp_path, script):
    path = tmp_path / "compiler"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


# Stands for a compiler: writes something where the library goes.
WRITES = 'for last; do :; done; echo library > "$last"; echo run >> "$(dirname "$0")/runs"'


def library_path():
    """Where the library is, and what is there."""
    with build.compiled() as path:
        return path, path and path.read_text()


def runs(tmp_path):
    """How often the compiler ran."""
    return (tmp_path / "runs").read_text().count("run")


def test_compiled_once(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    path, content = library_path()
    assert (path, content) == library_path() and content == "library\n"
    assert runs(tmp_path) == 1
    assert [each.name for each in folder.iterdir()] == [path.name]


def test_other_sources_are_compiled_again(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    path = library_path()
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-g"])
    assert library_path() != path
    monkeypatch.setattr(build, "_processor", lambda: "another machine with the same home")
    assert library_path() != path
    assert len(list(folder.iterdir())) == 3


@pytest.mark.parametrize("damage", [b"libr", b"", b"library\nand more", b"Library\n"])
def test_a_damaged_library_is_compiled_again(damage, tmp_path, folder, monkeypatch):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    path, _ = library_path()
    path.write_bytes(damage)
    assert library_path() == (path, "library\n") and runs(tmp_path) == 2
    assert [each.name for each in folder.iterdir()] == [path.name]


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A copy of the compiled kernels."""
    return shutil.copy(native.library()._name, tmp_path_factory.mktemp("real"))


def test_a_truncated_library_is_not_loaded(real, folder):
    """The system's loader ends a process that loads a library without its end."""
    size = os.path.getsize(real)
    for left in (size // 2, size - 1, 64):
        path = build.store(Path(real), folder, "native")
        assert build.stored_library(folder, "native") == path
        os.truncate(path, left)
        assert build.stored_library(folder, "native") is None and not path.exists()


def test_a_folder_that_others_can_write_to_is_not_used(tmp_path, folder, monkeypatch, caplog):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    stored, _ = library_path()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for mode in (0o777, 0o770, 0o702):
        folder.chmod(mode)
        path, content = library_path()
        assert content == "library\n" and path.parent != folder and not path.exists()
    assert runs(tmp_path) == 4
    assert caplog.text.count("because others can write there") >= 3
    folder.chmod(0o755)
    assert library_path()[0] == stored
    monkeypatch.setattr("os.getuid", lambda: 4711)  # as if root's folder were another user's
    monkeypatch.setattr("os.stat", lambda path: SimpleNamespace(st_uid=4712, st_mode=0o40755))
    assert not build.only_ours(folder)


def test_two_processes_at_once(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, f"sleep 0.3; {WRITES}"))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: library_path(), range(4)))
    assert found == found[:1] * 4 and found[0][1] == "library\n"
    assert [each.name for each in folder.iterdir()] == [found[0][0].name]


@pytest.mark.parametrize("cause", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_without_room_each_process_compiles_its_own(cause, tmp_path, folder, monkeypatch, caplog):
    def full(*args, **kwargs):
        raise OSError(cause, os.strerror(cause))

    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    monkeypatch.setattr(
        "os.fsync" if cause == errno.ENOSPC else "specdec_plugin.outputs._new_file", full
    )
    path, content = library_path()
    assert content == "library\n" and not path.exists()
    assert list(folder.iterdir()) == []
    assert f"{os.strerror(cause)}. Each start compiles them again. Make room" in caplog.text


def test_a_library_that_cannot_be_loaded(tmp_path, folder, monkeypatch, caplog):
    """Such as in a folder that is mounted without the right to execute."""
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    native._loaded.cache_clear()
    try:
        assert native.library() is None
    finally:
        native._loaded.cache_clear()
    assert "cannot be loaded from" in caplog.text and "SPECDEC_CACHE" in caplog.text
    assert native.why_missing().startswith("the native kernels could not be compiled or loaded")


def test_a_compiler_may_be_called_by_another_program(tmp_path, monkeypatch):
    """As in CXX="ccache g++"."""
    usual = build.find_compiler()
    assert usual is not None
    monkeypatch.setenv("CXX", f"env {usual} -DUNUSED_NAME")
    compiler = build.find_compiler()
    assert compiler == f"env {usual} -DUNUSED_NAME"
    assert build.fingerprint(compiler) != build.fingerprint(usual)
    done = build.compile_in(tmp_path, compiler, ["-fsyntax-only"])
    assert done.returncode == 0, done.stderr
    monkeypatch.setenv("CXX", f"env-of-nobody {usual}")
    assert build.find_compiler() is None


def test_an_unknown_sanitizer_is_refused(monkeypatch):
    monkeypatch.setenv("SPECDEC_SANITIZE", "memory")
    with pytest.raises(PluginError, match=r"=memory is not known\. Give one of 0, 1"):
        build.fingerprint("c++")


def test_every_header_counts(tmp_path, monkeypatch):
    here = {path.name for path in build.ROOT.rglob("*.h")}
    assert here == {path.name for path in build.sources()} and "linear.h" in here
    before = build.fingerprint("c++")
    declare(tmp_path, monkeypatch, "own.h")
    assert build.fingerprint("c++") != before
    before = build.fingerprint("c++")
    (tmp_path / "included.h").write_text("// by own.h")
    assert build.fingerprint("c++") != before


def declare(folder, monkeypatch, name):
    """A header outside of the package."""
    monkeypatch.setattr(interface, "_headers", dict(interface._headers))
    (folder / name).write_text("")
    interface.Header(str(folder / "module.py"), name)


def test_flags_that_the_compiler_does_not_know(tmp_path, folder, monkeypatch):
    script = f'case "$*" in *openmp*) exit 1;; esac; {WRITES}'
    monkeypatch.setenv("CXX", compiler_that(tmp_path, script))
    assert library_path()[1] == "library\n"


def test_a_compiler_that_fails(tmp_path, folder, monkeypatch, caplog):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, "echo no such header >&2; exit 1"))
    with caplog.at_level(logging.INFO):
        assert library_path() == (None, None)
    assert "no such header" in caplog.text
    assert not folder.exists()


def test_no_compiler(folder, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert library_path() == (None, None)


def test_a_warning_says_that_there_are_no_kernels_and_what_to_do(folder, monkeypatch, caplog):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    native._loaded.cache_clear()
    try:
        assert native.library() is None
    finally:
        native._loaded.cache_clear()
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "no native kernels" in record.message and "Install a C++ compiler" in record.message
    assert "a C++ compiler is needed" in native.why_missing()


@pytest.mark.parametrize(
    "bits, names", [(0, "the compiler's least"), (3, "AVX2, AVX-512"), (16, "NEON")]
)
def test_the_instructions_of_kernels_have_names(bits, names):
    class Kernels:
        def linear_instructions(self):
            return bits

    assert native.instructions(Kernels()) == names


def test_a_folder_that_cannot_be_written(tmp_path, monkeypatch, caplog):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("SPECDEC_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    assert library_path()[1] == "library\n"
    assert "cannot be stored" in caplog.text


def test_turned_off(monkeypatch):
    monkeypatch.setenv("SPECDEC_NATIVE", "0")
    native._loaded.cache_clear()
    try:
        assert native.library() is None
        assert choose_backend(torch.device("cpu")).unsupported().startswith("SPECDEC_NATIVE=0")
        model = build_model()
        engine, encoder_out, tokens = (
            CachedDecoder(model.decoder),
            encode(model),
            random_tokens(3, 9),
        )
        logits = feed_in_steps(engine, engine.start(encoder_out, 8), tokens, [4, 5])
        assert (logits - full_logits(model, tokens, encoder_out)).abs().max() < 1e-4
    finally:
        native._loaded.cache_clear()
