"""Kernels that a test writes itself."""

import ctypes
import subprocess
from pathlib import Path
from typing import Any, Sequence

from specdec_plugin.engine.native import build, interface


def compiled(folder: Path, flags: Sequence[str] = ()) -> "subprocess.CompletedProcess[str]":
    """How compiling what is declared ended; the library is in the folder then."""
    compiler = build.find_compiler()
    assert compiler is not None, "the tests need a C++ compiler"
    return build.compile_in(folder, compiler, flags)


def loaded(folder: Path) -> Any:
    """The library of what is declared, compiled without a warning for the level that is tested."""
    done = compiled(folder, [*build.variants()[0], "-Werror"])
    assert done.returncode == 0, done.stderr
    library = ctypes.CDLL(str(folder / "library.so"))
    interface.bind(library)
    return library
