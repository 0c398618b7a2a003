"""How many threads compute."""

import contextlib
import ctypes
import functools
import math
import os
import re
import threading
from pathlib import Path
from typing import Callable, Iterator, Optional

import torch

#: Where Linux shows control groups, and where those of this process.
CGROUPS, OWN_CGROUP = "/sys/fs/cgroup", "/proc/self/cgroup"
#: Where Linux shows the libraries of this process.
MAPS = "/proc/self/maps"


class _Outside(threading.local):
    """Of each thread, how many threads there are outside of :func:`one_thread`; None there."""

    threads: Optional[int] = None


_OUTSIDE = _Outside()


#: Numbers times threads up to which one thread alone computes with them. On 2 processors of an AMD
#: EPYC (Zen 4), an ensemble of two models with 8,000 symbols gained up to 160 rows, and lost with
#: 640.
_FEW = 3 << 20


@contextlib.contextmanager
def one_thread(numbers: Optional[int] = 0) -> Iterator[None]:
    """Let PyTorch's operators run on the calling thread alone.

    Threads of OpenMP, which PyTorch has, wait for their next work by spinning for milliseconds.
    The kernels have threads of their own, which need these processors meanwhile. Ensembles take up
    to twice as long where the two alternate.

    Args:
        numbers: that each operator computes with. With many, and with None, nothing changes.
    """
    few = numbers is not None and numbers * torch.get_num_threads() <= _FEW
    set_threads = _set_threads() if few and _OUTSIDE.threads is None else None
    if set_threads is None:
        yield
        return
    _OUTSIDE.threads = torch.get_num_threads()
    set_threads(1)
    try:
        yield
    finally:
        set_threads(_OUTSIDE.threads)
        _OUTSIDE.threads = None


def kernel_threads() -> int:
    """How many threads the kernels have: as many as PyTorch has outside of :func:`one_thread`."""
    return _OUTSIDE.threads or torch.get_num_threads()


@functools.cache
def _set_threads() -> Optional[Callable[[int], object]]:
    """What sets the number of PyTorch's threads for the calling thread; None where unknown.

    ``torch.set_num_threads`` sets it for threads that begin meanwhile, too.
    """
    try:
        lines = Path(MAPS).read_text("utf-8").splitlines()
    except OSError:
        return None
    paths = {line.split(maxsplit=5)[-1] for line in lines if "omp" in line.rsplit("/", 1)[-1]}
    for path in sorted(paths):
        try:
            library = ctypes.CDLL(path)
            known, found = library.omp_get_max_threads(), library.omp_set_num_threads
        except (OSError, AttributeError):  # no library, or none of OpenMP
            continue
        before = torch.get_num_threads()
        found(before + 1)
        works = torch.get_num_threads() == before + 1
        found(known)
        if works:
            return found
    return None


def processors() -> int:
    """How many processors this process may use, at once and in the long run."""
    allowed = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    quota = cpu_quota()
    return allowed if quota is None else min(allowed, max(1, math.floor(quota)))


def respect_quota() -> None:
    """Let PyTorch and the kernels have no more threads than a container has processors' time.

    Threads that share a processor wait for each other. ``OMP_NUM_THREADS``, the user's own number,
    is kept.
    """
    if cpu_quota() is not None and not _user_tells():
        torch.set_num_threads(min(torch.get_num_threads(), processors()))


def take_all_processors() -> bool:
    """Whether threads that compute leave no processor to another process."""
    return torch.get_num_threads() >= processors()


def measured_threads() -> int:
    """Threads of a program that measures, unless it is given ``--threads``.

    ``OMP_NUM_THREADS``, the user's own number, or two of the processors, so that figures of several
    machines can be compared.
    """
    if _user_tells():
        return torch.get_num_threads()
    return min(2, processors())


def _user_tells() -> bool:
    """Whether ``OMP_NUM_THREADS`` has a number, or one for each level of nested threads.

    OpenMP warns of anything else, such as nothing at all, and ignores it.
    """
    given = os.environ.get("OMP_NUM_THREADS", "")
    return all(re.fullmatch(r"\s*\+?0*[1-9][0-9]*\s*", each) for each in given.split(","))


def cpu_quota() -> Optional[float]:
    """Processors whose time the process' control groups grant it; None: any number.

    Containers see the machine's processors, whatever their quota is. Both versions of control
    groups are read: ``cpu.max`` of version 2, and ``cpu.cfs_quota_us`` of version 1.
    """
    quotas = [quota for quota in map(_quota_in, _control_groups()) if quota is not None]
    return min(quotas, default=None)


def _control_groups() -> Iterator[Path]:
    """The folders of the process' control groups for processors, and of those that they are in."""
    try:
        lines = Path(OWN_CGROUP).read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        if number == "0":  # version 2
            root = Path(CGROUPS)
        elif "cpu" in controllers.split(","):  # version 1 has a tree for each controller
            root = Path(CGROUPS) / "cpu"
        else:
            continue
        own = root / path.lstrip("/")
        yield from (each for each in (own, *own.parents) if each.is_relative_to(root))


def _quota_in(folder: Path) -> Optional[float]:
    """2.0 for 200,000 microseconds in each period of 100,000; None where there is no limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text("utf-8").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text("utf-8")
            period = (folder / "cpu.cfs_period_us").read_text("utf-8")
        return None if quota == "max" or int(quota) < 0 else int(quota) / int(period)
    except (OSError, ValueError):
        return None
