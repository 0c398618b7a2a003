"""Threads in a container whose control group limits its processors' time."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from specdec_plugin.engine import threads


@pytest.fixture
def container(tmp_path, monkeypatch):
    """Makes control groups, by their path from the outermost, and puts this process in the last."""
    monkeypatch.setattr(threads, "CGROUPS", str(tmp_path / "cgroup"))
    monkeypatch.setattr(threads, "OWN_CGROUP", str(tmp_path / "own"))
    monkeypatch.setattr("os.sched_getaffinity", lambda process: set(range(16)))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    def make(*groups):
        folder = tmp_path / "cgroup"
        folder.mkdir()
        for name, limit in groups:
            folder = folder / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cpu.max").write_text(limit, "utf-8")
        own = folder.relative_to(tmp_path / "cgroup").as_posix()
        (tmp_path / "own").write_text(
            f"4:memory:/other\n0::/{'' if own == '.' else own}\n", "utf-8"
        )

    return make


@pytest.mark.parametrize(
    "groups, quota, processors",
    [
        ([("", "200000 100000\n")], 2.0, 2),
        ([("", "max 100000\n")], None, 16),
        ([("", "150000 100000\n")], 1.5, 1),
        ([("", "50000 100000\n")], 0.5, 1),
        ([("", "6400000 100000\n")], 64.0, 16),
        ([("pod", "400000 100000\n"), ("app", "max 100000\n")], 4.0, 4),
        ([("pod", "400000 100000\n"), ("app", "300000 100000\n")], 3.0, 3),
        ([("pod", "")], None, 16),
    ],
)
def test_the_quota_is_read(container, groups, quota, processors):
    container(*groups)
    assert threads.cpu_quota() == quota and threads.processors() == processors


@pytest.mark.parametrize(
    "controllers, groups, quota",
    [
        ("cpu", [("", "-1"), ("app", "100000")], 1.0),
        ("cpu,cpuacct", [("pod", "200000"), ("app", "-1")], 2.0),
        ("cpuacct,cpu", [("pod", "-1"), ("app", "-1")], None),
        ("cpuset", [("app", "100000")], None),
    ],
)
def test_the_quota_of_version_1_is_read(container, controllers, groups, quota):
    container()
    folder = Path(threads.CGROUPS) / "cpu"
    for name, limit in groups:
        folder = folder / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cpu.cfs_quota_us").write_text(f"{limit}\n", "utf-8")
        (folder / "cpu.cfs_period_us").write_text("100000\n", "utf-8")
    path = folder.relative_to(Path(threads.CGROUPS) / "cpu")
    lines = f"9:name=systemd:/\n3:{controllers}:/{path}\n0::/\n"
    Path(threads.OWN_CGROUP).write_text(lines, "utf-8")
    assert threads.cpu_quota() == quota


def test_without_control_groups_all_processors_are_used(container):
    assert threads.cpu_quota() is None and threads.processors() == 16


@pytest.mark.parametrize(
    "limit, given, before, wanted",
    [
        ("200000 100000\n", None, 16, [2]),
        ("200000 100000\n", None, 1, [1]),
        ("200000 100000\n", "8", 8, []),
        ("200000 100000\n", " 8,2", 8, []),
        ("200000 100000\n", "", 16, [2]),
        ("200000 100000\n", "x", 16, [2]),
        ("200000 100000\n", "0", 16, [2]),
        ("max 100000\n", None, 16, []),
    ],
)
def test_threads_are_no_more_than_the_quota(container, monkeypatch, limit, given, before, wanted):
    container(("", limit))
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    used = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: before)
    monkeypatch.setattr(torch, "set_num_threads", used.append)
    threads.respect_quota()
    assert used == wanted


@pytest.mark.parametrize(
    "given, limit, wanted",
    [(None, "max", 2), (None, "100000", 1), ("5", "max", 5), ("", "max", 2), ("five", "max", 2)],
)
def test_a_program_that_measures_has_the_users_threads_or_two(
    container, monkeypatch, given, limit, wanted
):
    container(("", f"{limit} 100000\n"))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 5)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    assert threads.measured_threads() == wanted


@pytest.mark.parametrize("used, all_of_them", [(1, False), (2, True), (3, True)])
def test_threads_that_take_all_processors(monkeypatch, used, all_of_them):
    monkeypatch.setattr(torch, "get_num_threads", lambda: used)
    monkeypatch.setattr(threads, "processors", lambda: 2)
    assert threads.take_all_processors() is all_of_them


@pytest.fixture
def two_threads(threads_again):
    torch.set_num_threads(2)


@pytest.mark.usefixtures("two_threads")
def test_operators_of_pytorch_on_one_thread():
    """Kernels have all, and so have threads that begin meanwhile."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux tells which libraries a process has")
    seen = []
    with pytest.raises(KeyError), threads.one_thread():
        with threads.one_thread():
            seen.append(torch.get_num_threads())
        seen.append(torch.get_num_threads())
        seen.append(threads.kernel_threads())
        with ThreadPoolExecutor(1) as others:  # which begins meanwhile
            seen.append(others.submit(torch.get_num_threads).result())
        raise KeyError
    for numbers in (None, threads._FEW):
        with threads.one_thread(numbers):
            seen.append(torch.get_num_threads())
    assert seen == [1, 1, 2, 2, 2, 2]
    assert torch.get_num_threads() == threads.kernel_threads() == 2


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("libraries", [None, "7f00-7f01 r-xp 00000000 08:01 7 /no/libgomp.so.1\n"])
def test_without_openmp_nothing_changes(monkeypatch, tmp_path, libraries):
    """Where no system tells of libraries, and where one has gone."""
    if libraries is not None:
        (tmp_path / "maps").write_text(libraries, "utf-8")
    monkeypatch.setattr(threads, "MAPS", str(tmp_path / "maps"))
    threads._set_threads.cache_clear()
    with threads.one_thread():
        assert torch.get_num_threads() == threads.kernel_threads() == 2
    threads._set_threads.cache_clear()
