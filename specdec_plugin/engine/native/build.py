"""Compiling the native kernels on first use, for the processor at hand."""

import hashlib
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import List, Optional

logger = logging.getLogger(__name__)

HERE = Path(__file__).resolve().parent
#: The package: headers lie beside what they belong to.
ROOT = HERE.parents[1]
FLAGS = ["-O3", "-std=c++17", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
#: Tried in this order: some compilers know no -march=native, some have no OpenMP.
VARIANTS = ("-march=native -fopenmp", "-fopenmp", "-march=native", "")


def sources() -> List[Path]:
    """All C++ of the package, in a fixed order."""
    return sorted([*ROOT.rglob("*.h"), *ROOT.rglob("*.cpp")])


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
    digest = hashlib.sha256()
    for source in sources():
        digest.update(source.read_bytes())
    digest.update(repr((FLAGS, VARIANTS, shutil.which(compiler), _processor())).encode())
    return digest.hexdigest()[:16]


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            return next(line for line in lines if line.startswith(("flags", "Features")))
    except (OSError, StopIteration):
        return platform.processor() + platform.machine()


def compile_to(path: Path, compiler: str) -> bool:
    """Compile into ``path``, whole or not at all; tells whether it worked."""
    message = ""
    for variant in VARIANTS:
        # Other processes may compile the same: each writes a file of its own, the last one stays.
        handle, name = tempfile.mkstemp(suffix=".so", dir=path.parent)
        os.close(handle)
        source = str(HERE / "interface.cpp")
        command = [compiler, *FLAGS, *variant.split(), f"-I{ROOT}", source, "-o", name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            os.replace(name, path)
            return True
        os.unlink(name)
        message = message or done.stderr
    logger.info(f"the native kernels do not compile:\n{message}")
    return False
