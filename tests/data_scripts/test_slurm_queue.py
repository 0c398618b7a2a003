"""What squeue tells of jobs, and what becomes of it."""

import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest
import slurm_queue
from slurm_queue import Queue

from specdec_plugin.errors import PluginError


class Cluster:
    """A folder with programs of Slurm that tell what was written into files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.program("squeue", '[ -z "$SQUEUE_STATES" ] && cat "$0.txt"')
        self.program("scancel", 'echo "$@" >> "$0.txt"')

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def tell(self, *lines: str) -> None:
        """Of jobs: number, state, partition and reason."""
        text = "".join(f"{line}\n" for line in lines)
        (self.folder / "squeue.txt").write_text(text, "utf-8")


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    monkeypatch.setattr(slurm_queue, "SECONDS", 0.0)
    monkeypatch.setattr(slurm_queue, "GRACE", 0.0)
    return Cluster(tmp_path)


def queue(*jobs: str) -> Queue:
    found = Queue()
    for job in jobs:
        found.register_job(job)
    return found


def test_which_jobs_are_over(cluster: Cluster) -> None:
    lives = "PENDING RUNNING COMPLETING CONFIGURING SUSPENDED REQUEUED REQUEUE_HOLD STOPPED".split()
    for state in (*lives, *sorted(slurm_queue.OVER)):
        cluster.tell("4_0|RUNNING|p|None", f"4_1|{state}|p|None")
        jobs = queue("4_1")
        assert jobs.is_done("4_1") == (state not in lives), state
        assert jobs.get_state("4_1") == state
    cluster.tell("4_0|RUNNING|p|None")  # Slurm forgets what is over
    jobs = queue("4_0", "4_1")
    assert [jobs.is_done("4_0"), jobs.is_done("4_1")] == [False, True]


def test_a_job_that_is_queued_again_in_time_is_not_over(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(slurm_queue.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(slurm_queue, "GRACE", 15.0)
    jobs = queue("4_1")
    over = []
    for state in ("NODE_FAIL", "PENDING", "RUNNING", "NODE_FAIL", "NODE_FAIL"):
        cluster.tell(f"4_1|{state}|p|None")
        over.append(jobs.is_done("4_1"))
        clock[0] += 20
    assert over == [False, False, False, False, True]


def test_a_slurm_that_does_not_answer_is_waited_for(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = queue("4_1")
    cluster.program("squeue", "echo 'squeue: error: no contact' >&2; exit 1")
    assert not jobs.is_done("4_1") and not jobs.is_done("4_1")
    told = capsys.readouterr().err
    assert told.count("warning: Slurm does not tell how the jobs are (squeue: error: no con") == 1
    (cluster.folder / "squeue").unlink()
    (cluster.folder / "squeue").mkdir()  # nor is there another on the path
    os.environ["PATH"] = str(cluster.folder)
    assert not queue("4_1").is_done("4_1")


def test_why_jobs_wait_is_told_once(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    cluster.tell("4_0|PENDING|p|JobHeldUser", "4_1|PENDING|p|JobHeldUser", "4_2|PENDING|p|Priority")
    jobs = queue("4_0", "4_1", "4_2")
    assert not jobs.is_done("4_0")
    listed = (cluster.folder / "squeue.txt").read_text("utf-8")
    cluster.tell("4_0|RUNNING|p|None", "4_1|RUNNING|p|None", "4_2|PENDING|p|Resources")
    assert not jobs.is_done("4_0")
    (cluster.folder / "squeue.txt").write_text(listed, "utf-8")  # some reasons come and go
    assert not jobs.is_done("4_1")
    assert capsys.readouterr().err == (
        "warning: 2 jobs wait in Slurm, which tells the reason JobHeldUser.\n"
    )


@pytest.mark.parametrize(
    "reason, sentence",
    [
        ("PartitionTimeLimit", r"partition p \(PartitionTimeLimit\): give fewer --minutes or ano"),
        ("QOSMaxWallDurationPerJobLimit", "give fewer --minutes"),
        ("AssocMaxCpuPerJobLimit", "give other --slurm options or another --partition"),
    ],
)
def test_jobs_that_never_start_end_the_run(cluster: Cluster, reason: str, sentence: str) -> None:
    cluster.tell(f"4_0|PENDING|p|{reason}")
    with pytest.raises(PluginError, match=sentence):
        queue("4_0").is_done("4_0")
    cluster.tell(f"4_0|PENDING|p,q|{reason}")  # another partition may start it
    assert not queue("4_0").is_done("4_0")


def test_all_jobs_are_cancelled_by_one_call(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    jobs = [SimpleNamespace(job_id=each) for each in ("4_0", "4_1", "7")]
    slurm_queue.cancel([])
    slurm_queue.cancel(jobs)
    assert (cluster.folder / "scancel.txt").read_text("utf-8") == "--quiet 4_0 4_1 7\n"
    cluster.program("scancel", "echo refused >&2; exit 1")
    slurm_queue.cancel(jobs)
    assert "the jobs go on, as they could not be cancelled (refused): scancel 4 7" in (
        capsys.readouterr().err
    )
