"""Compiling the native kernels on first use, for the processor at hand."""

import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import List, Optional, Sequence

from . import levels
from .interface import ROOT, header_text, headers, unit_text

logger = logging.getLogger(__name__)

FLAGS = [
    "-O3",
    "-std=c++17",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-shared",
    "-fPIC",
    "-pthread",
]
WARNINGS = ["-Wall", "-Wextra", "-Wmissing-declarations"]
#: With SPECDEC_SANITIZE=1, what finds wrong addresses and undefined behaviour.
SANITIZE = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"]
#: Where a library is compiled for other machines.
PORTABLE = ["-include", "engine/native/portable.h", "-s"]


def library_path() -> Optional[Path]:
    """The compiled library, compiled now if it never was; None where that is impossible."""
    compiler = find_compiler()
    if compiler is None:
        logger.info("no C++ compiler was found (CXX, c++, g++, clang++)")
        return None
    path = cache_folder() / f"native-{fingerprint(compiler)}.so"
    if path.exists():
        return path
    logger.info(f"compiling the native kernels with {compiler}, once: {path}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path if compile_to(path, compiler) else None
    except OSError as error:
        logger.info(f"the native kernels cannot be stored: {error}")
        return None


def find_compiler() -> Optional[str]:
    """The C++ compiler: ``CXX`` of the environment, or a usual name."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((name for name in names if shutil.which(name)), None)


def cache_folder() -> Path:
    """Where compiled libraries stay: ``SPECDEC_CACHE``, or the user's cache folder."""
    if os.environ.get("SPECDEC_CACHE"):
        return Path(os.environ["SPECDEC_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "specdec_plugin"


def fingerprint(compiler: str) -> str:
    """Differs with sources, flags, compiler and processor: a home may serve several machines."""
    given = repr((_flags(), variants(), shutil.which(compiler), _processor()))
    return hashlib.sha256((source_digest() + given).encode()).hexdigest()[:16]


def source_digest() -> str:
    """Differs with what is compiled."""
    digest = hashlib.sha256((header_text() + unit_text()).encode())
    for source in sources():
        digest.update(source.read_bytes())
    return digest.hexdigest()[:16]


def variants() -> List[List[str]]:
    """Flags for the instructions to use, tried in this order: some compilers know no native ones.

    Where the system does not tell what the processor has, its native instructions could not be
    told from those of another machine with the same home. Then the best known level is compiled.
    """
    wanted = levels.wanted()
    if wanted in (None, levels.NATIVE) and levels.cpuinfo() is not None:
        return [["-march=native"], []]
    runnable = levels.runnable()
    chosen = [each for each in runnable if each.name == wanted] or runnable[-1:]
    return [level.flags for level in chosen] or [[]]


def sources() -> List[Path]:
    """All C++ headers of the package, and those beside headers that others declared."""
    folders = {header.path.parent for header in headers() if ROOT not in header.path.parents}
    return sorted([*ROOT.rglob("*.h"), *(path for each in folders for path in each.glob("*.h"))])


def _processor() -> List[str]:
    return [levels.machine(), *sorted(levels.features(levels.cpuinfo()))]


def compile_to(path: Path, compiler: str) -> bool:
    """Compile into ``path``, whole or not at all; tells whether it worked."""
    message = ""
    # Other processes may compile the same: each has a folder of its own, the last library stays.
    with tempfile.TemporaryDirectory(dir=path.parent) as name:
        folder = Path(name)
        for variant in variants():
            done = compile_in(folder, compiler, variant)
            if done.returncode == 0:
                os.replace(folder / "library.so", path)
                return True
            message = message or done.stderr
    logger.info(f"the native kernels do not compile:\n{message}")
    return False


def compile_in(
    folder: Path, compiler: str, flags: Sequence[str]
) -> "subprocess.CompletedProcess[str]":
    """Write what is generated into ``folder``, and compile it to ``library.so`` there."""
    unit = folder / "unit.cpp"
    unit.write_text(unit_text(), encoding="utf-8")
    (folder / "interface.h").write_text(header_text(), encoding="utf-8")
    paths = [f"-I{ROOT}", f"-I{folder}", str(unit), "-o", str(folder / "library.so")]
    command = [compiler, *_flags(), *flags, *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sanitized() -> bool:
    """Whether sanitizers are asked for."""
    return os.environ.get("SPECDEC_SANITIZE", "0") != "0"


def _flags() -> List[str]:
    return [*FLAGS, *WARNINGS, *(SANITIZE if sanitized() else ())]
