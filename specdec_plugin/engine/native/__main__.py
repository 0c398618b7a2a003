"""Compile the kernels with warnings as errors: ``python -m specdec_plugin.engine.native``.

Each compiler of the command line (or the usual one) compiles them for processors with vectors of
128, 256 and 512 bits.
"""

import platform
import sys
import tempfile
from pathlib import Path

from .build import VARIANTS, compile_in, find_compiler

_X86 = ("", "-march=haswell", "-march=sapphirerapids")


def main() -> None:
    """Print the compilers' messages; the exit status is 1 if that is anything."""
    variants = _X86 if platform.machine() == "x86_64" else VARIANTS
    status = 0
    usual = find_compiler()
    compilers = sys.argv[1:] or ([] if usual is None else [usual])
    if not compilers:
        sys.exit("no C++ compiler was found (CXX, c++, g++, clang++)")
    for compiler in compilers:
        for variant in variants:
            with tempfile.TemporaryDirectory() as folder:
                done = compile_in(Path(folder), compiler, [*variant.split(), "-O1", "-Werror"])
            print(f"{compiler} {variant}: {'a warning or error' if done.returncode else 'clean'}")
            if done.returncode:
                print(done.stderr)
                status = 1
    sys.exit(status)


if __name__ == "__main__":
    main()
