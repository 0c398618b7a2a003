"""Compiling the native kernels on first use, for the processor at hand."""

import contextlib
import hashlib
import logging
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator, List, Optional, Sequence

from ...errors import PluginError
from ...outputs import written_whole
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
#: By SPECDEC_SANITIZE: what finds wrong addresses and undefined behaviour (1); what finds data
#: races, with random delays where threads meet; and such delays alone.
SANITIZERS = {
    "0": [],
    "1": ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover"],
    "thread": ["-O1", "-g", "-fsanitize=thread", "-DSPECDEC_DELAYS"],
    "delays": ["-DSPECDEC_DELAYS"],
}
#: Where a library is compiled for other machines.
PORTABLE = ["-include", "engine/native/portable.h", "-s"]


@contextlib.contextmanager
def compiled() -> Iterator[Optional[Path]]:
    """The compiled library, compiled now if none is stored; None where that is impossible.

    It can be loaded inside the context. Afterwards it may be removed.
    """
    compiler = find_compiler()
    if compiler is None:
        logger.info("no C++ compiler was found (CXX, c++, g++, clang++)")
        yield None
        return
    folder, name = cache_folder(), f"native-{fingerprint(compiler)}"
    stored = stored_library(folder, name)
    if stored is not None:
        yield stored
        return
    with contextlib.ExitStack() as stack:
        try:
            own = stack.enter_context(tempfile.TemporaryDirectory(prefix="specdec-"))
            logger.info(f"compiling the native kernels with {compiler}, once: {folder}")
            built = compile_any(Path(own), compiler)
        except OSError as error:
            logger.info(f"the native kernels cannot be compiled: {error}")
            built = None
        yield built and (store(built, folder, name) or built)


def stored_library(folder: Path, name: str) -> Optional[Path]:
    """The library of this name in the cache; None where there is none that can be trusted.

    The name of a file ends in a digest of its content. So one that was cut off or changed is told
    from a whole one, which the loader of the system does not do.
    """
    try:
        paths = sorted(folder.glob(f"{name}-*.so"))
        if not paths or not only_ours(folder):
            return None
        for path in paths:
            if path.name == _named(name, path):
                return path
            logger.info(f"{path} is damaged, and is compiled again")
            path.unlink()
    except OSError as error:
        logger.info(f"stored kernels cannot be read: {error}")
    return None


def store(library: Path, folder: Path, name: str) -> Optional[Path]:
    """Put a library into the cache, whole or not at all; None where that is impossible."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not only_ours(folder):
            return None
        path = folder / _named(name, library)
        with written_whole(str(path), mode=0o600) as unfinished:
            shutil.copyfile(library, unfinished)
        return path
    except OSError as error:
        logger.warning(
            f"The native kernels cannot be stored in {folder}, because {error}. Each start "
            "compiles them again. Make room, let this user write there, or name another folder in "
            "SPECDEC_CACHE."
        )
        return None


def only_ours(folder: Path) -> bool:
    """Whether nobody else can write into a folder from which code is loaded; if not, a warning."""
    found = os.stat(folder)
    if found.st_uid in (os.getuid(), 0) and not found.st_mode & 0o022:
        return True
    logger.warning(
        f"Compiled kernels in {folder} are not used, because others can write there. This process "
        "compiles its own. Remove the folder, or name one of yours in SPECDEC_CACHE."
    )
    return False


def _named(name: str, library: Path) -> str:
    """The file name of a library in the cache."""
    return f"{name}-{hashlib.sha256(library.read_bytes()).hexdigest()[:16]}.so"


def find_compiler() -> Optional[str]:
    """The C++ compiler: ``CXX`` of the environment, such as "ccache g++", or a usual name."""
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["c++", "g++", "clang++"]
    return next((name for name in names if all(map(shutil.which, _programs(name)))), None)


def _programs(compiler: str) -> List[str]:
    """The compiler, and what it is called by, of a command that may have flags too."""
    return [part for part in compiler.split() if not part.startswith("-")]


def cache_folder() -> Path:
    """Where compiled libraries stay: ``SPECDEC_CACHE``, or the user's cache folder."""
    if os.environ.get("SPECDEC_CACHE"):
        return Path(os.environ["SPECDEC_CACHE"])
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "specdec_plugin"


def fingerprint(compiler: str) -> str:
    """Differs with sources, flags, compiler and processor: a home may serve several machines.

    A compiler is known by its command and its paths, because its version would take a process.
    """
    programs = [shutil.which(each) for each in _programs(compiler)]
    given = repr((_flags(), variants(), compiler, programs, _processor()))
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


def compile_any(folder: Path, compiler: str) -> Optional[Path]:
    """Compile in an empty folder; the library there, or None where it does not compile."""
    message = ""
    for variant in variants():
        done = compile_in(folder, compiler, variant)
        if done.returncode == 0:
            return folder / "library.so"
        message = message or done.stderr
    logger.info(f"the native kernels do not compile:\n{message}")
    return None


def compile_in(
    folder: Path, compiler: str, flags: Sequence[str]
) -> "subprocess.CompletedProcess[str]":
    """Write what is generated into ``folder``, and compile it to ``library.so`` there."""
    unit = folder / "unit.cpp"
    unit.write_text(unit_text(), encoding="utf-8")
    (folder / "interface.h").write_text(header_text(), encoding="utf-8")
    paths = [f"-I{ROOT}", f"-I{folder}", str(unit), "-o", str(folder / "library.so")]
    command = [*compiler.split(), *_flags(), *flags, *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def sanitized() -> bool:
    """Whether sanitizers are asked for."""
    return os.environ.get("SPECDEC_SANITIZE", "0") != "0"


def _flags() -> List[str]:
    mode = os.environ.get("SPECDEC_SANITIZE", "0")
    if mode not in SANITIZERS:
        known = ", ".join(SANITIZERS)
        raise PluginError(f"SPECDEC_SANITIZE={mode} is not known. Give one of {known}.")
    return [*FLAGS, *WARNINGS, *SANITIZERS[mode]]
