"""Compile the kernels: ``python -m specdec_plugin.engine.native``."""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import List

from . import levels, prebuilt
from .build import compile_in, find_compiler

#: Those whose code differs by more than a line: vectors of 128, 256 and 512 bits.
CHECKED = ("sse2", "avx2", "avx512-bf16", "neon")


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m specdec_plugin.engine.native",
        description="Compile the kernels with warnings as errors, for vectors of each width.",
        epilog="example:\n  python -m specdec_plugin.engine.native g++ clang++",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("compilers", nargs="*", help="default: the one that is used otherwise")
    parser.add_argument(
        "--machine",
        default=levels.machine(),
        help="family of processors to compile for (default: this machine's, %(default)s)",
    )
    parser.add_argument(
        "--into", type=Path, help="instead, compile a library for each level into this folder"
    )
    parser.add_argument(
        "--list", action="store_true", help="instead, print the levels that this processor can run"
    )
    return parser


def main() -> None:
    """Print what the compilers report; the exit status is 1 if that is anything."""
    args = build_parser().parse_args()
    usual = find_compiler()
    compilers: List[str] = args.compilers or ([] if usual is None else [usual])
    if args.list:
        print(*(level.name for level in levels.runnable()), sep="\n")
        return
    if not compilers:
        sys.exit("no C++ compiler was found (CXX, c++, g++, clang++)")
    if args.into is not None:
        print(*prebuilt.compile_into(args.into, args.machine, compilers[0]), sep="\n")
        return
    clean = [check(compiler, args.machine) for compiler in compilers]
    sys.exit(not all(clean))


def check(compiler: str, family: str) -> bool:
    """Compile with warnings as errors; tells whether there is none."""
    clean = True
    for level in levels.of_machine(family):
        if level.name not in CHECKED:
            continue
        with tempfile.TemporaryDirectory() as folder:
            done = compile_in(Path(folder), compiler, [*level.flags, "-O1", "-Werror"])
        print(f"{compiler} {level.name}: {'a warning or error' if done.returncode else 'clean'}")
        if done.returncode:
            print(done.stderr)
            clean = False
    return clean


if __name__ == "__main__":
    main()
