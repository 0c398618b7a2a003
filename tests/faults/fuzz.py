"""Reads damaged files for a given time: ``python -m tests.faults.fuzz --minutes 60``.

Each file is read in a process of its own. It has to end with a success or a PluginError, in time,
and with at most twice the memory of an intact file. Whatever ends otherwise is told with a command
that repeats it.
"""

import argparse
import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress

from .mutations import damage
from .readers import READERS

#: Seconds after which a reader hangs, and bytes that Python's own workings may take.
SECONDS, SLACK = 20, 48 << 20
#: Bytes of addresses beyond what an intact file takes, at which a reader is stopped.
WILD = 2 << 30
OUTCOMES = {0: "read", 1: "refused"}


class Ended(NamedTuple):
    """How a process ended.

    Attributes:
        what: ``read``, ``refused``, or what was wrong.
        peak: bytes of memory that it took beyond those of its parent.
        told: its error.
    """

    what: str
    peak: int
    told: str


def run(work: Callable[[], Any], folder: Path, wild: Optional[int] = None) -> Ended:
    """Do some work in a forked process.

    Args:
        work: what may fail.
        folder: for the process' notes.
        wild: bytes of addresses that it may take beyond its parent's.
    """
    note, began = folder / "note", time.monotonic()
    note.write_text("", "utf-8")
    child = os.fork()
    if child == 0:
        os._exit(_in_child(work, note, wild))
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() - began > SECONDS:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return Ended("hangs", 0, "")
        time.sleep(0.002)
    code, told = os.waitstatus_to_exitcode(status), note.read_text("utf-8", "replace")
    if code < 0:
        return Ended(f"crashes with {signal.Signals(-code).name}", 0, told)
    peak, _, told = told.partition("\n")
    return Ended(OUTCOMES.get(code, "fails without a sentence"), int(peak or 0), told)


def _in_child(work: Callable[[], Any], note: Path, wild: Optional[int]) -> int:
    code, told = 2, ""
    try:
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        warnings.simplefilter("ignore")
        faulthandler.disable()  # pytest's writes to the terminal
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forgets the peak
        if wild is not None:
            most = _status("VmSize") + wild
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        try:
            work()
            code = 0
        except PluginError as error:
            code, told = 1, str(error)
        except BaseException:
            told = traceback.format_exc()
        note.write_text(f"{max(0, _status('VmHWM') - before)}\n{told}", "utf-8", "replace")
    finally:
        return code  # noqa: B012


def _status(name: str) -> int:
    """Bytes of memory of this process, by the name in /proc."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{name}:"))


class Target:
    """A reader with an intact file.

    Args:
        name: of :data:`READERS`.
        folder: an empty one.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self._folder, self._reader = name, folder, READERS[name]
        self._intact, self._damaged = folder / "intact", folder / "damaged"
        self._intact.mkdir(parents=True)
        self._reader.make(self._intact)
        self._restore()
        honest = run(lambda: self._reader.read(self._path()), folder)
        if honest.what not in OUTCOMES.values():
            raise RuntimeError(f"the intact file of {name}: {honest}")
        self.honest = honest.peak

    def case(self, seed: int) -> Ended:
        """Damage the file in a way that the seed tells, and read it."""
        random = Random(f"{self.name} {seed}")
        self._restore()
        damage(random.choice(sorted(self._damaged.glob(self._reader.name))), random)
        ended = run(lambda: self._reader.read(self._path()), self._folder, self.honest + WILD)
        if ended.peak > 2 * self.honest + SLACK and ended.what in OUTCOMES.values():
            took = f"{ended.peak >> 20} MiB, and an intact file {self.honest >> 20} MiB"
            return ended._replace(what="takes too much memory", told=f"{took}\n{ended.told}")
        return ended

    def _restore(self) -> None:
        shutil.rmtree(self._damaged, ignore_errors=True)
        shutil.copytree(self._intact, self._damaged)

    def _path(self) -> Path:
        return self._damaged if self._reader.name == "*" else self._one()

    def _one(self) -> Path:
        (found,) = self._damaged.glob(self._reader.name)
        return found


def fuzz(names: List[str], minutes: float, first: int) -> Dict[str, "Counter[str]"]:
    """Damage and read files in turn; what happened how often, by reader."""
    counts: Dict[str, Counter[str]] = {name: Counter() for name in names}
    known = set()
    begin, seed = time.monotonic(), first
    with (
        tempfile.TemporaryDirectory() as folder,
        Progress(total=round(60 * minutes), unit="s") as bar,
    ):
        targets = [Target(name, Path(folder) / name.replace(" ", "-")) for name in names]
        while (passed := time.monotonic() - begin) < 60 * minutes:
            for target in targets:
                ended = target.case(seed)
                counts[target.name][ended.what] += 1
                last = (ended.told.strip().splitlines() or [""])[-1]
                if ended.what not in OUTCOMES.values() and (target.name, last[:40]) not in known:
                    known.add((target.name, last[:40]))
                    again = f"python -m tests.faults.fuzz --reader '{target.name}' --seed {seed}"
                    Progress.write(f"{target.name} {ended.what}: {last}\n    {again}", sys.stderr)
            seed += 1
            bar.update(round(time.monotonic() - begin) - round(passed))
    return counts


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program; the exit status is 1 if a file ended a reader otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="default: %(default)s")
    parser.add_argument("--reader", nargs="+", choices=READERS, default=[*READERS], metavar="NAME")
    parser.add_argument("--seed", type=int, help="read one damaged file, and tell what happened")
    parser.add_argument("--first", type=int, default=0, help="seed of the first damage")
    args = parser.parse_args(argv)
    torch.set_num_threads(1)  # threads of OpenMP do not survive a fork
    Progress.monitor_interval = 0  # tqdm's thread neither
    if args.seed is not None:
        for name in args.reader:
            with tempfile.TemporaryDirectory() as folder:
                print(*Target(name, Path(folder) / "one").case(args.seed), sep="\n")
        return
    counts = fuzz(args.reader, args.minutes, args.first)
    for name, found in counts.items():
        told = ", ".join(f"{count:,} {what}" for what, count in sorted(found.items()))
        print(f"{name}: {told}")
    sys.exit(any({*found} - {*OUTCOMES.values()} for found in counts.values()))


if __name__ == "__main__":
    main()
