"""Test the kernels for aarch64 on another processor, by a cross compiler and an emulator."""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

DESCRIPTION = """\
Compile the kernels for aarch64 by Debian's cross compiler, and run tests under user-mode
emulation. Debian's Python for aarch64 and packages for it are unpacked into a folder, and nothing
is installed. Then the same sentences are decoded on both processors, and their tokens compared.
Where a program is missing, a sentence names it, and the exit status is 0."""

EXAMPLE = """\
example:
  python data_scripts/emulate_arm.py --folder build/arm tests/engine/test_linear.py"""

ROOT = Path(__file__).resolve().parents[1]
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
#: Programs, and the Debian packages that have them.
PROGRAMS = {
    COMPILER: "g++-aarch64-linux-gnu",
    EMULATOR: "qemu-user",
    "apt-get": "apt",
    "dpkg": "dpkg",
}
#: Of Debian, for the emulated system.
SYSTEM = ["python3", "libgomp1", "libstdc++6"]
#: The last that PyPI has for aarch64 without libraries for GPUs.
TORCH = "2.8.0"
#: Of the environment, but not needed by what runs.
UNUSED = {"fairseq-fixed", "torchaudio"}
TESTS = ["tests/engine/test_native_linear.py", "tests/engine/test_linear.py"]
PREBUILT = "specdec_plugin/engine/native/prebuilt"


def main(given: Optional[Sequence[str]] = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=DESCRIPTION, epilog=EXAMPLE, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("tests", nargs="*", default=TESTS, help="default: those of linear maps")
    parser.add_argument(
        "--folder", type=Path, default=Path("build/arm"), help="default: %(default)s"
    )
    args = parser.parse_args(given)
    missing = [package for name, package in PROGRAMS.items() if not shutil.which(name)]
    if missing:
        print(
            "The tests for aarch64 are skipped, because programs are missing. On Debian, "
            f"`apt install {' '.join(missing)}` installs them."
        )
        return
    emulated = Emulated(args.folder.resolve())
    emulated.set_up()
    print("== tests", flush=True)
    status = emulated.run("-m", "pytest", "-q", "-p", "no:cacheprovider", *args.tests).returncode
    print("== fifty sentences on both processors", flush=True)
    sys.exit(status or not same_tokens(emulated))


class Emulated:
    """A Python for aarch64 with packages and the plugin, in one folder.

    Args:
        folder: for everything; its packages are kept for the next time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.system, self.packages, self.work = (
            folder / "system",
            folder / "packages",
            folder / "work",
        )

    def set_up(self) -> None:
        """Unpack and compile what is missing."""
        if not self.pythons():
            print("== Debian's Python for aarch64", flush=True)
            self.unpack_system()
        if not self.packages.exists():
            print("== packages for aarch64", flush=True)
            self.unpack_packages()
        print("== kernels for aarch64", flush=True)
        self.compile()

    def pythons(self) -> List[Path]:
        """The emulated interpreter, if it is there."""
        found = sorted((self.system / "usr/bin").glob("python3.*"))
        return [path for path in found if re.fullmatch(r"python3\.\d+", path.name)]

    def unpack_system(self) -> None:
        """Fetch packages of Debian with what they need, without a trace in this system."""
        lists, cache = self.folder / "apt/lists", self.folder / "apt/cache"
        for downloads in (lists, cache / "archives"):
            (downloads / "partial").mkdir(parents=True, exist_ok=True)
        options = {
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "Dir::State::lists": lists,
            "Dir::State::status": "/dev/null",  # of a system without packages
            "Dir::Cache": cache,
            "Debug::NoLocking": 1,
        }
        apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
        run([*apt, "update"])
        run([*apt, "install", "--yes", "--no-install-recommends", "--download-only", *SYSTEM])
        for archive in sorted((cache / "archives").glob("*.deb")):
            run(["dpkg", "-x", archive, self.system])

    def unpack_packages(self) -> None:
        """Fetch those packages of this environment that have compiled code."""
        version = self.pythons()[0].name.removeprefix("python")
        unfinished = self.packages.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        tags = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 26, 27, 28)]
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        pip += ["--no-deps", "--only-binary=:all:", "--implementation=cp"]
        pip += [f"--python-version={version}", "--platform=manylinux2014_aarch64", *tags]
        run([*pip, "--target", unfinished, *compiled_packages()])
        unfinished.rename(self.packages)

    def compile(self) -> None:
        """Copy the plugin, and compile its kernels beside it, as a wheel has them."""
        shutil.rmtree(self.work, ignore_errors=True)
        ignore = shutil.ignore_patterns("__pycache__", "prebuilt")
        for name in ("specdec_plugin", "tests"):
            shutil.copytree(ROOT / name, self.work / name, ignore=ignore)
        shutil.copy(ROOT / "pyproject.toml", self.work)
        (self.work / "checkpoints").symlink_to(ROOT / "checkpoints")
        module = [sys.executable, "-m", "specdec_plugin.engine.native", "--machine", "aarch64"]
        run([*module, "--into", self.work / PREBUILT, COMPILER], python_path(self.work))

    def run(self, *arguments: str, **options: Any) -> "subprocess.CompletedProcess[str]":
        """Run the emulated Python, in the folder with the copy of the plugin."""
        pure = [Path(path) for path in sys.path if Path(path).name == "site-packages"]
        environment = {
            **python_path(self.work, self.packages, *pure),
            "QEMU_LD_PREFIX": str(self.system),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [EMULATOR, self.pythons()[0], *arguments]
        return subprocess.run(command, cwd=self.work, env=environment, text=True, **options)


def python_path(*folders: Path) -> Dict[str, str]:
    """The environment for a Python that looks in these folders first."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}


def run(command: Sequence[Any], environment: Optional[Dict[str, str]] = None) -> None:
    """Run a program, and end with its status where it fails."""
    done = subprocess.run(list(map(str, command)), env=environment, check=False)
    if done.returncode:
        sys.exit(f"{command[0]} failed with the status {done.returncode}; see above")


def compiled_packages() -> List[str]:
    """Requirements for the packages of this environment that have compiled code."""
    versions = {"torch": TORCH}
    for package in metadata.distributions():
        name = package.metadata["Name"]
        compiled = any(path.suffix == ".so" for path in package.files or ())
        if compiled and name not in {*versions, *UNUSED}:
            versions[name] = package.version
    return [f"{name}=={version}" for name, version in versions.items()]


def same_tokens(emulated: Emulated) -> bool:
    """Whether both processors decode the same tokens; prints the kernels of both."""
    program = ["-m", "tests.support.fifty"]
    theirs = emulated.run(*program, stdout=subprocess.PIPE, check=True).stdout
    ours = subprocess.run(
        [sys.executable, *program],
        cwd=ROOT, env=python_path(ROOT), stdout=subprocess.PIPE, text=True, check=True,
    ).stdout  # fmt: skip
    found = [json.loads(printed) for printed in (theirs, ours)]
    print(*(each["kernels"] for each in found), sep=" and ", end=": ")
    same = all(found[0][method] == found[1][method] for method in ("greedy", "specdec"))
    print("identical tokens" if same else "the tokens differ")
    return same


if __name__ == "__main__":
    main()
