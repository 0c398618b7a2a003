"""Shards as jobs of submitit: killed, preempted, mistaken."""

import contextlib
import errno
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, Iterator, List, Optional

import distill_shard
import launch_shards
import merge_shards
import pytest
from launch_shards import Run, Shard

from specdec_plugin.errors import PluginError
from specdec_plugin.outputs import alone
from tests.support.command_lines import ENGLISH, ENVIRONMENT, ROOT, SCRIPTS
from tests.support.files import some

ShardArgs = Callable[..., List[str]]


#: Of a job that is still running.
ENDLESS = object()


class FakeJob:
    """Ends at the second look, with the outcome that the executor has for it, or never."""

    def __init__(self, outcome: Any) -> None:
        self._outcome, self._looks = outcome, 0
        self.cancelled = False
        self.paths = SimpleNamespace(stderr="job.err")

    def done(self) -> bool:
        self._looks += 1
        return self._looks > 1 and self._outcome is not ENDLESS

    def exception(self) -> Optional[Exception]:
        return self._outcome if isinstance(self._outcome, Exception) else None

    def result(self) -> Any:
        return self._outcome

    def cancel(self, check: bool = True) -> None:
        self.cancelled = True


class FakeExecutor:
    """Hands out what jobs come to, by shard, and counts how many there are at a time."""

    def __init__(self, outcomes: Dict[int, List[Any]]) -> None:
        self._outcomes = outcomes
        self.jobs: List[FakeJob] = []
        self.submitted: List[int] = []
        self.batches: List[int] = []

    @contextlib.contextmanager
    def batch(self) -> Any:
        before = len(self.submitted)
        yield
        self.batches.append(len(self.submitted) - before)

    def submit(self, shard: Shard) -> FakeJob:
        self.submitted.append(shard.number)
        outcomes = self._outcomes.get(shard.number, [])
        self.jobs.append(FakeJob(outcomes.pop(0) if outcomes else None))
        return self.jobs[-1]


KILLED = RuntimeError("has not produced any output")


def finish(executor: FakeExecutor, at_once: Optional[int] = None, grows: bool = False) -> None:
    """Run four shards."""
    sizes = iter(range(10**6))
    shards = [Shard(number, []) for number in range(4)]

    def size(shard: Shard) -> int:
        return next(sizes) if grows else 7

    Run(executor, shards, at_once, size, launch_shards.cancel_each).finish(0.001)


def test_all_at_once_or_some() -> None:
    executor = FakeExecutor({})
    finish(executor)
    assert executor.submitted == [0, 1, 2, 3] and executor.batches == [4]
    executor = FakeExecutor({})
    finish(executor, at_once=3)
    assert executor.submitted == [0, 1, 2, 3] and executor.batches == [3, 1]


def test_killed_jobs_begin_again() -> None:
    executor = FakeExecutor({1: [KILLED] * 3, 2: [KILLED]})
    finish(executor)
    assert sorted(executor.submitted) == [0, 1, 1, 1, 1, 2, 2, 3]


def test_a_shard_that_gets_further_may_be_killed_at_any_time() -> None:
    executor = FakeExecutor({1: [KILLED] * 50})
    finish(executor, grows=True)
    assert executor.submitted.count(1) == 51


def test_a_shard_that_does_not_get_further_ends_the_run() -> None:
    executor = FakeExecutor({1: [KILLED] * 50})
    with pytest.raises(PluginError, match=r"shard 1 ended 6 times without getting further .*job"):
        finish(executor)
    assert executor.submitted.count(1) == 1 + launch_shards.FRUITLESS


def test_what_submitit_cannot_write_is_told() -> None:
    """Its jobs cannot be cancelled before they are submitted."""

    class Full(FakeExecutor):
        @contextlib.contextmanager
        def batch(self) -> Any:
            yield
            raise OSError(errno.ENOSPC, "No space left")

    executor = Full({})
    with pytest.raises(OSError, match="No space left"):
        finish(executor)
    assert executor.jobs and not any(job.cancelled for job in executor.jobs)


def test_a_mistake_is_told_once_and_ends_the_other_jobs() -> None:
    executor = FakeExecutor({0: ["Leave --prefix-size out."]})
    with pytest.raises(PluginError, match=r"^shard 0: Leave --prefix-size out\.$"):
        finish(executor, at_once=1)
    assert executor.submitted == [0]
    executor = FakeExecutor({1: ["It is wrong."], 2: [ENDLESS]})
    with pytest.raises(PluginError, match="shard 1: It is wrong"):
        finish(executor)
    assert [job.cancelled for job in executor.jobs] == [False, False, True, False]


@pytest.mark.parametrize(
    "more, sentence",
    [
        (["--launcher", "submitit", "--slurm", "mem"], "^--slurm mem: write NAME=VALUE"),
        (["--launcher", "submitit", "--slurm", "time=3"], "^--slurm time=3: give --minutes"),
        (["--launcher", "submitit", "--slurm", "nodes=2"], "^--slurm nodes=2: leave it out"),
        (["--launcher", "submitit", "--slurm", "men=3"], r"--slurm: Unavailable .*\['men'\]"),
        (["--launcher", "local", "--partition", "p"], "--partition and --slurm belong to"),
        (["--launcher", "local", "--jobs", "0"], "--jobs 0: give 1 or more"),
        (["--launcher", "local", "--shards", "0"], "--shards 0: give 1 or more"),
    ],
)
def test_bad_options(
    more: List[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, monkeypatch)
    with pytest.raises(PluginError, match=sentence):
        launch_shards.main(["--shards", "2", "--output-dir", str(tmp_path), *more])


def test_without_slurm_or_submitit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ["--shards", "2", "--output-dir", str(tmp_path), "--launcher", "submitit"]
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PluginError, match=r"srun was not found.*Use --launcher local"):
        launch_shards.main(args)
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(PluginError, match=r"pip install 'specdec-plugin\[slurm\]'"):
        launch_shards.main(args)


@pytest.mark.parametrize(
    "said, sentence",
    [
        (
            "error: invalid partition specified: x\nsbatch: error: Batch job submission failed.",
            r"^Slurm took no job \(invalid partition specified: x; Batch job submission failed\)\. "
            "Change --partition, --minutes or --slurm, and run the command again",
        ),
        (
            "error: Invalid job array specification",
            r"specification\)\. Give fewer --shards, and run",
        ),
        ("error: Invalid generic resource (gres)", "or add --cpu where there is no GPU, and run"),
    ],
)
def test_what_sbatch_refuses_is_a_sentence(
    said: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = fake_slurm(tmp_path, monkeypatch)
    (place / "sbatch").write_text(f"#!/bin/sh\necho 'sbatch: {said}' >&2\nexit 1\n", "utf-8")
    args = ["--launcher", "submitit", "--shards", "2", "--output-dir", str(tmp_path / "shards")]
    with pytest.raises(PluginError, match=sentence):
        launch_shards.main([*args, "--cpu"])
    (place / "sbatch").unlink()
    monkeypatch.setenv("PATH", str(place))
    with pytest.raises(PluginError, match=r"sbatch was not found.*login node"):
        launch_shards.main([*args, "--cpu"])


def test_what_slurm_refuses_while_jobs_run_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Busy(FakeExecutor):
        """Takes no job but the first, until it was asked three times."""

        refusals = 0

        @contextlib.contextmanager
        def batch(self) -> Any:
            if self.submitted and self.refusals < 2:
                self.refusals += 1
                raise RuntimeError("sbatch: error: Socket timed out on send/recv operation")
            yield

    monkeypatch.setattr(launch_shards, "LATER", 0.0)
    executor = Busy({0: [ENDLESS], 1: [KILLED]})
    run = Run(executor, [Shard(n, []) for n in range(2)], None, lambda _: 7, lambda jobs: None)
    with pytest.raises(TimeoutError):  # of the first, which never ends
        with monkeypatch.context() as patch:
            looks = iter(range(20))
            patch.setattr(time, "sleep", lambda _: next(looks, None) is None and _timeout())
            run.finish(0.001)
    assert executor.submitted == [0, 1, 1] and executor.refusals == 2
    assert capsys.readouterr().err.count("Slurm took no job (Socket timed out on send/recv") == 2


def _timeout() -> None:
    raise TimeoutError


def test_two_launchers_of_a_folder_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_slurm(tmp_path, monkeypatch)
    args = ["--launcher", "submitit", "--shards", "2", "--output-dir", str(tmp_path), "--cpu"]
    with (
        alone(str(tmp_path / "jobs"), "launched"),
        pytest.raises(PluginError, match="being launched by an"),
    ):
        launch_shards.main(args)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """Restore the handlers of all signals that launch_shards.py handles."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_jobs_of_a_script_in_the_background_can_be_cancelled() -> None:
    """submitit cancels those of this machine by SIGINT, which such a script ignores."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    launch_shards.heed_signals()
    os.kill(os.getpid(), signal.SIGINT)
    job = subprocess.Popen(["sleep", "60"])
    job.send_signal(signal.SIGINT)
    assert job.wait(30) == -signal.SIGINT


@pytest.mark.usefixtures("own_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_what_ends_a_session_cancels_jobs(number: signal.Signals) -> None:
    """As Ctrl-C does, but where nohup has the signal ignored."""
    signal.signal(number, signal.SIG_IGN)
    launch_shards.heed_signals()
    os.kill(os.getpid(), number)
    signal.signal(number, signal.SIG_DFL)
    launch_shards.heed_signals()
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), number)
        time.sleep(10)


def test_a_job_that_is_queued_again_reports_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries make an error of the exit that submitit's handler of signals raises."""
    pytest.importorskip("submitit")

    def interrupted(arguments: List[str]) -> None:
        try:
            shard.checkpoint()
            raise SystemExit(-1)
        except BaseException:
            raise AttributeError("of omegaconf") from None

    def leave(status: int) -> None:
        raise BlockingIOError  # as the process would end

    shard = Shard(3, [])
    monkeypatch.setattr(distill_shard, "main", interrupted)
    monkeypatch.setattr(os, "_exit", leave)
    with pytest.raises(BlockingIOError):
        shard()
    monkeypatch.setattr(distill_shard, "main", lambda arguments: None)
    assert shard() is None  # what is queued is the same


def test_the_last_line_of_an_error_is_that_of_its_trace() -> None:
    trace = f"failed with trace:\n{22 * '-'}\n  File x\nOSError: full\n\n{22 * '-'}\n  - /log.out"
    assert launch_shards.last_line(RuntimeError(trace)) == "OSError: full"
    log = f"Error stream produced:\n{40 * '-'}\nsrun: error: Killed\n"
    assert launch_shards.last_line(RuntimeError(log)) == "srun: error: Killed"


#: Does what these programs of Slurm do for job arrays, with processes of this machine.
SLURM = """\
import os, re, subprocess, sys, time
folder = os.path.dirname(os.path.abspath(__file__))
program, args = os.path.basename(sys.argv[0]), sys.argv[1:]

def path(job, kind):
    return os.path.join(folder, job + "." + kind)

if args[0] == "run":  # a job, again when it was queued again
    job, script = args[1:]
    ids = dict(SLURM_JOB_ID="77", SLURM_ARRAY_JOB_ID="77", SLURM_ARRAY_TASK_ID=job[3:])
    requeued, runs = path(job, "requeued"), 0
    while runs == 0 or os.path.exists(requeued) and os.path.getsize(requeued) == runs:
        subprocess.run(["bash", script], env={**os.environ, **ids, "SLURM_PROCID": "0"})
        runs += 1
    open(path(job, "state"), "w").write("COMPLETED")
elif program == "srun":  # the options all have values but one
    args.remove("--unbuffered")
    out, error = args[args.index("--output") + 1], args[args.index("--error") + 1]
    names = {"%A": os.environ["SLURM_ARRAY_JOB_ID"], "%a": os.environ["SLURM_ARRAY_TASK_ID"]}
    for name, value in {**names, "%t": "0"}.items():
        out, error = out.replace(name, value), error.replace(name, value)
    os.dup2(os.open(out, os.O_CREAT | os.O_APPEND | os.O_WRONLY), 1)
    os.dup2(os.open(error, os.O_CREAT | os.O_APPEND | os.O_WRONLY), 2)
    os.execvp(args[4], args[4:])
elif program == "sbatch":
    (last,) = re.findall(r"--array=0-(\\d+)", open(args[0]).read())
    open(path("77", "sbatch"), "w").write(open(args[0]).read())
    for task in range(int(last) + 1):
        job = f"77_{task}"
        open(path(job, "state"), "w").write("RUNNING")
        subprocess.Popen([sys.executable, __file__, "run", job, args[0]], start_new_session=True,
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print("Submitted batch job 77")
elif program == "scontrol":
    open(path(args[1], "requeued"), "a").write("x")
elif program == "squeue":
    for name in sorted(os.listdir(folder)):
        if name.endswith(".state"):
            print(f"{name[:-6]}|{open(os.path.join(folder, name)).read()}|gpu|None")
elif program == "scancel":
    open(path("all", "cancelled"), "a").write(" ".join(args) + chr(10))
"""


def fake_slurm(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put Slurm's programs first on the path; the folder that they write into."""
    place = folder / "slurm"
    place.mkdir()
    for name in ("srun", "sbatch", "scontrol", "squeue", "scancel"):
        program = place / name
        program.write_text(f"#!{sys.executable}\n{SLURM}", "utf-8")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{place}{os.pathsep}{os.environ['PATH']}")
    return place


def source_of(folder: Path, lines: int) -> Path:
    """A text to decode."""
    choose = random.Random(5)
    text = [" ".join(choose.choices(ENGLISH, k=choose.randint(1, 9))) for _ in range(lines)]
    path = folder / "source"
    path.write_text("".join(line + "\n" for line in text), "utf-8")
    return path


def merged(folder: Path, source: Path) -> bytes:
    output = folder.parent / f"{folder.name}.merged"
    merge_shards.main([str(folder), "--source", str(source), "--output", str(output)])
    return output.read_bytes()


def processes(word: str, folder: Path) -> List[int]:
    """Of submitit's jobs below a folder, those that run a module."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().decode(errors="replace")
            if word in line and str(folder) in line:
                found.append(int(path.parent.name))
    return found


#: A program of submitit's local executor that watches a job, and one that does it.
WATCHES, WORKS = "submitit.local._local", "submitit.core._submit"


def launcher_of(args: List[str]) -> "subprocess.Popen[bytes]":
    command = [sys.executable, str(SCRIPTS / "launch_shards.py"), *args]
    return subprocess.Popen(command, env=ENVIRONMENT, cwd=ROOT)


def written(folder: Path) -> int:
    """Bytes of all shards."""
    return sum(path.stat().st_size for path in folder.glob("shard-*.txt"))


def wait_for(condition: Callable[[], Any], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_slurm_queues_preempted_jobs_again(
    shard_args: ShardArgs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place, source, folder = fake_slurm(tmp_path, monkeypatch), source_of(tmp_path, 600), tmp_path
    whole = shard_args(source, tmp_path / "whole", "--batch-size", 1)
    distill_shard.main(whole)
    folder = tmp_path / "shards"
    args = shard_args(source, folder, "--batch-size", 1, "--shards", 2)
    args += ["--launcher", "submitit", "--partition", "gpu", "--slurm", "cpus_per_task=3"]
    monkeypatch.setitem(ENVIRONMENT, "PATH", os.environ["PATH"])
    monkeypatch.setitem(ENVIRONMENT, "SUBMITIT_PREEMPT_SIGNAL", "USR2")
    launcher = launcher_of(args)
    shard = folder / "shard-0000-of-0002.txt"
    wait_for(lambda: shard.exists() and shard.read_bytes().count(b"\n") > 20)
    for process in processes(WORKS, folder):
        os.kill(process, signal.SIGUSR2)
    before = shard.read_bytes()
    assert launcher.wait(200) == 0
    assert shard.read_bytes().startswith(before[: before.rindex(b"\n")])
    assert (place / "77_0.requeued").exists()
    script = (place / "77.sbatch").read_text("utf-8")
    for option in ("array=0-1%2", "partition=gpu", "cpus-per-task=3", "time=240"):
        assert f"#SBATCH --{option}\n" in script
    assert "gpus-per-node" not in script  # --cpu
    assert merged(folder, source) == merged(tmp_path / "whole", source)


@pytest.mark.slow
@pytest.mark.timeout(2400)
def test_twenty_kills_change_no_byte(shard_args: ShardArgs, tmp_path: Path) -> None:
    """Of jobs, of what watches them, and of the launcher itself, over the whole run."""
    source = source_of(tmp_path, 8 * 400)
    slow = ["--batch-size", 1, "--task", "translation", "--shards", 8]
    for shard in range(8):
        distill_shard.main(shard_args(source, tmp_path / "whole", *slow, "--shard", shard))
    folder, choose = tmp_path / "shards", random.Random(11)
    args = shard_args(source, folder, *slow, "--launcher", "local", "--jobs", 3)
    launcher, kills = launcher_of(args), {WATCHES: 0, WORKS: 0, "launcher": 0}
    # When so many bytes are decoded, somebody is killed soon after.
    when = sorted(choose.uniform(0.02, 0.9) * written(tmp_path / "whole") for _ in range(20))
    while sum(kills.values()) < 20:
        wait_for(lambda: written(folder) > when[sum(kills.values())], 600)
        time.sleep(choose.uniform(0, 1))
        assert launcher.poll() is None, f"it ended after {kills}"
        victim = choose.choices([WORKS, WATCHES, "launcher"], [6, 2, 1])[0]
        if victim == "launcher":
            launcher.kill()
            launcher.wait()
            launcher = launcher_of(args)
        else:
            found = processes(victim, folder)
            if not found:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(choose.choice(found), signal.SIGKILL)
        kills[victim] += 1
    print(f"kills: {kills}")
    assert launcher.wait(1200) == 0 and min(kills.values()) > 0
    wait_for(lambda: not processes(WORKS, folder))  # those that lost who watched them
    assert merged(folder, source) == merged(tmp_path / "whole", source)
    for path in some((tmp_path / "whole").glob("shard-*")):
        assert (folder / path.name).read_bytes() == path.read_bytes()
    shutil.rmtree(folder)
