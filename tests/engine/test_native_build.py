"""Compiling the kernels: once, whole or not at all, and never required."""

import logging
import stat

import pytest

from specdec_plugin.engine import CachedDecoder, native
from specdec_plugin.engine.native import build, interface
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


def test_compiled_once(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    path = build.library_path()
    assert path == build.library_path()
    assert path.read_text() == "library\n"
    assert (tmp_path / "runs").read_text() == "run\n"
    assert [each.name for each in folder.iterdir()] == [path.name]


def test_other_sources_are_compiled_again(tmp_path, folder, monkeypatch):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, WRITES))
    path = build.library_path()
    monkeypatch.setattr(build, "FLAGS", [*build.FLAGS, "-g"])
    assert build.library_path() != path
    monkeypatch.setattr(build, "_processor", lambda: "another machine with the same home")
    assert build.library_path() != path
    assert len(list(folder.iterdir())) == 3


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
    assert build.library_path().exists()


def test_a_compiler_that_fails(tmp_path, folder, monkeypatch, caplog):
    monkeypatch.setenv("CXX", compiler_that(tmp_path, "echo no such header >&2; exit 1"))
    with caplog.at_level(logging.INFO):
        assert build.library_path() is None
    assert "no such header" in caplog.text
    assert list(folder.iterdir()) == []


def test_no_compiler(folder, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    assert build.library_path() is None


def test_a_warning_says_that_there_are_no_kernels_and_what_to_do(folder, monkeypatch, caplog):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", "")
    native.library.cache_clear()
    try:
        assert native.library() is None
    finally:
        native.library.cache_clear()
    (record,) = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "no native kernels" in record.message and "Install a C++ compiler" in record.message


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
    with caplog.at_level(logging.INFO):
        assert build.library_path() is None
    assert "cannot be stored" in caplog.text


def test_turned_off(monkeypatch):
    monkeypatch.setenv("SPECDEC_NATIVE", "0")
    native.library.cache_clear()
    try:
        assert native.library() is None
        model = build_model()
        engine, encoder_out, tokens = (
            CachedDecoder(model.decoder),
            encode(model),
            random_tokens(3, 9),
        )
        logits = feed_in_steps(engine, engine.start(encoder_out, 8), tokens, [4, 5])
        assert (logits - full_logits(model, tokens, encoder_out)).abs().max() < 1e-4
    finally:
        native.library.cache_clear()
