"""Wheels: with kernels for each level where they can be compiled, and without them elsewhere."""

import os
import platform
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any, Dict, List

import pytest
import setuptools  # noqa: F401  (gives distutils where Python no longer has it)

from specdec_plugin.engine.native import levels
from tests.support.command_lines import ROOT, run_cli

PREBUILT = "specdec_plugin/engine/native/prebuilt/"
LINUX_X86 = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="the wheels of Linux on x86"
)
#: Stands for a compiler: writes something where the library goes.
COMPILER = '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\necho library > "$2"\n'


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Makes the command that builds wheels, for a platform."""
    from distutils.core import run_setup

    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("SPECDEC_NATIVE", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")

    def make(plat_name: str) -> Any:
        declared = run_setup("setup.py", stop_after="init")
        made = declared.cmdclass["bdist_wheel"](declared)
        made.plat_name = plat_name
        made.finalize_options()
        return made

    return make


@pytest.mark.parametrize("family", ["x86_64", "aarch64"])
def test_the_tag_names_the_platform_and_no_python(command: Any, family: str) -> None:
    made = command(f"linux_{family}")
    assert made.reason == ""
    assert made.get_tag() == ("py3", "none", f"linux_{family}")
    assert not made.root_is_pure


def test_a_wheel_without_kernels_serves_every_platform(
    command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = command("macosx_14_0_arm64")
    assert made.reason == "there are none for macosx_14_0_arm64"
    assert made.get_tag() == ("py3", "none", "any") and made.root_is_pure
    monkeypatch.setenv("SPECDEC_NATIVE", "0")
    assert command("linux_x86_64").reason == "SPECDEC_NATIVE is 0"


def test_what_is_missing_is_told(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    assert command("linux_aarch64").reason == "the compiler aarch64-linux-gnu-g++ is missing"
    monkeypatch.setenv("CXX", "no-such")
    assert command("linux_x86_64").reason == "the compiler no-such is missing"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "torch and fairseq cannot be imported" in command("linux_x86_64").reason


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of what a wheel is built from, as building writes beside it; and a compiler."""
    skipped = shutil.ignore_patterns("__pycache__", "prebuilt")
    shutil.copytree(Path(ROOT, "specdec_plugin"), tmp_path / "specdec_plugin", ignore=skipped)
    (tmp_path / "docs").mkdir()
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "docs/requirements.txt"):
        shutil.copy(Path(ROOT, name), tmp_path / name)
    compiler = tmp_path / "aarch64-linux-gnu-g++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    return tmp_path


def build(sources: Path, *options: str, **env: str) -> "zipfile.ZipFile":
    env = {"PATH": f"{sources}:{os.environ['PATH']}", "CXX": "aarch64-linux-gnu-g++", **env}
    run_cli(
        ["python", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", *options]
        + ["--disable-pip-version-check", "--wheel-dir", sources / "wheels", sources],
        env=env,
    )
    (path,) = (sources / "wheels").iterdir()
    return zipfile.ZipFile(path)


def prebuilt(wheel: "zipfile.ZipFile") -> List[str]:
    """The families and levels of a wheel's libraries."""
    files = [name.removeprefix(PREBUILT) for name in wheel.namelist() if PREBUILT in name]
    return [name.rsplit("-", 1)[0] for name in files]


def metadata(wheel: "zipfile.ZipFile") -> Dict[str, str]:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/WHEEL")]
    return dict(line.split(": ", 1) for line in wheel.read(name).decode().splitlines() if line)


@LINUX_X86
@pytest.mark.slow
def test_a_wheel_has_a_library_for_each_level(sources: Path) -> None:
    stale = sources / "build/lib.linux-x86_64-cpython-311" / PREBUILT / "x86_64-avx9-old.so"
    stale.parent.mkdir(parents=True)
    stale.write_text("of an earlier build")
    wheel = build(sources)
    wanted = [f"x86_64-{level.name}" for level in levels.of_machine("x86_64")]
    assert sorted(prebuilt(wheel)) == sorted(wanted)
    assert metadata(wheel)["Tag"] == "py3-none-linux_x86_64"
    assert metadata(wheel)["Root-Is-Purelib"] == "false"
    assert not [name for name in wheel.namelist() if ".data/" in name]
    assert f"{PREBUILT.removesuffix('prebuilt/')}linear.h" in wheel.namelist()  # compiles, too


@LINUX_X86
@pytest.mark.slow
def test_a_wheel_for_another_family(sources: Path) -> None:
    wheel = build(sources, "-C--build-option=--plat-name=linux_aarch64")
    assert prebuilt(wheel) == ["aarch64-neon"]
    assert metadata(wheel)["Tag"] == "py3-none-linux_aarch64"


@pytest.mark.slow
def test_a_wheel_without_kernels(sources: Path) -> None:
    wheel = build(sources, SPECDEC_NATIVE="0")
    assert prebuilt(wheel) == []
    assert metadata(wheel)["Tag"] == "py3-none-any"
