"""Libraries of kernels in a wheel: one for each level, so that no compiler is needed."""

import logging
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import List, NamedTuple, Optional

from ...errors import PluginError
from . import build, levels
from .levels import Level

logger = logging.getLogger(__name__)

#: Where a wheel has its libraries. Other installations have no such folder.
FOLDER = Path(__file__).resolve().parent / "prebuilt"


class Library(NamedTuple):
    """A compiled library.

    Attributes:
        path: of its file.
        level: whose instructions it uses.
    """

    path: Path
    level: Level


def find() -> Optional[Library]:
    """The best library that this processor can run; None where a library has to be compiled.

    A library serves the sources that it was compiled from. So kernels of one's own, which a plugin
    declares, need a compiler.
    """
    wanted = levels.wanted()
    if wanted == levels.NATIVE or build.sanitized() or not FOLDER.is_dir():
        return None
    for level in reversed(levels.runnable()):
        path = FOLDER / _name(level)
        if wanted in (None, level.name) and path.exists():
            return Library(path, level)
    logger.info(f"none of the compiled kernels in {FOLDER} fits")
    return None


def compile_into(folder: Path, family: str, compiler: str) -> List[Path]:
    """Compile a library for each level.

    Args:
        folder: for the libraries; made where there is none.
        family: of processors, such as ``x86_64``.
        compiler: for them.

    Returns:
        the libraries.

    Raises:
        PluginError: one does not compile, or the family has no levels.
    """
    chosen = levels.of_machine(family)
    if not chosen:
        known = ", ".join(sorted({level.machine for level in levels.LEVELS}))
        raise PluginError(f"there are no levels of kernels for {family}; give one of {known}")
    folder.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(lambda level: _compile(folder, level, compiler), chosen))


def _compile(folder: Path, level: Level, compiler: str) -> Path:
    path = folder / _name(level)
    with tempfile.TemporaryDirectory(dir=folder) as name:
        done = build.compile_in(Path(name), compiler, [*level.flags, *build.PORTABLE])
        if done.returncode:
            raise PluginError(
                f"{compiler} does not compile the kernels for {level.name}. Name another compiler. "
                f"Its errors:\n{done.stderr}"
            )
        os.replace(Path(name) / "library.so", path)
    return path


def _name(level: Level) -> str:
    return f"{level.machine}-{level.name}-{build.source_digest()}.so"
