"""How jobs of Slurm are, as ``squeue`` tells it.

submitit asks ``sacct``, which many clusters lack. It also takes a job that was preempted for good
for one that goes on, and one that is suspended for one that has ended.
"""

import collections
import os
import re
import subprocess
import sys
import time
from typing import Any, Dict, Iterable, List, Set

from specdec_plugin.errors import PluginError
from specdec_plugin.progress import Progress

#: Seconds between two calls of ``squeue``, at most.
SECONDS = 30.0
#: For so many seconds a job has to be over before it counts: its result may still travel between
#: two machines, and Slurm may queue it again.
GRACE = 15.0

#: What ``squeue`` calls a job that is over. It forgets one after some minutes.
OVER = {
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
    "PREEMPTED", "REVOKED", "TIMEOUT",
}  # fmt: skip

#: Why a job waits where all is well.
USUAL = {"None", "Priority", "Resources", "JobArrayTaskLimit", "BeginTime", "Prolog", "Cleaning"}

#: Why a job of a single partition waits for ever.
HOPELESS = re.compile(
    r"PartitionTimeLimit|PartitionNodeLimit|(Account|QOS)NotAllowed|Invalid(Account|QOS)"
    r"|(QOS|Assoc)Max\w*PerJob\w*"
)


def run(*command: str) -> str:
    """The standard output of one of Slurm's programs.

    Raises:
        OSError: it does not run, fails or does not answer; with what it said.
    """
    # The user's own defaults of squeue would leave jobs out.
    variables = {name: value for name, value in os.environ.items() if "SQUEUE_" not in name}
    try:
        done = subprocess.run(
            command, env=variables, timeout=120, start_new_session=True,
            stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OSError(f"{command[0]} does not answer") from None
    except FileNotFoundError:
        raise OSError(f"{command[0]} was not found") from None
    if done.returncode:
        raise OSError(" ".join(done.stderr.split()) or f"status {done.returncode}")
    return done.stdout


def warn(message: str) -> None:
    """Tell it beside the bar of progress."""
    Progress.write(f"warning: {message}", file=sys.stderr)


def cancel(jobs: Iterable[Any]) -> None:
    """Cancel jobs by one call, which a second Ctrl-C does not reach."""
    ids = [job.job_id for job in jobs]
    try:
        if ids:
            run("scancel", "--quiet", *ids)
    except OSError as error:
        arrays = " ".join(sorted({each.split("_")[0] for each in ids}))
        warn(f"the jobs go on, as they could not be cancelled ({error}): scancel {arrays}")


class Queue:
    """Stands in for submitit's watcher of all jobs."""

    def __init__(self) -> None:
        #: Jobs by their numbers, such as ``77_3``, with their states.
        self._states: Dict[str, str] = {}
        #: When a job was first seen to be over, and those that have been for long.
        self._gone: Dict[str, float] = {}
        self._done: Dict[str, str] = {}
        self._registered = self._asked = float("-inf")
        self._silent = False
        self._told: Set[str] = set()

    def register_job(self, job_id: str) -> None:
        """Ask for this job too."""
        self._states.setdefault(job_id, "UNKNOWN")
        self._registered = time.monotonic()

    def is_done(self, job_id: str, mode: str = "standard") -> bool:
        """Whether the job is over, and is not queued again.

        Raises:
            PluginError: Slurm will never start it.
        """
        self._look()
        return job_id in self._done

    def get_state(self, job_id: str, mode: str = "standard") -> str:
        """Slurm's name of it."""
        return self._states.get(job_id, "UNKNOWN")

    def get_info(self, job_id: str, mode: str = "standard") -> Dict[str, str]:
        """What submitit reads of it."""
        return {"State": self.get_state(job_id)}

    def _look(self) -> None:
        """Ask ``squeue``, unless it was asked a short time ago."""
        now = time.monotonic()
        wait = min(SECONDS, max(2.0, (now - self._registered) / 2))
        if self._gone.keys() - self._done.keys():
            wait = min(wait, GRACE)
        if now - self._asked < wait or not self._states.keys() - self._done.keys():
            return
        self._asked = now
        command = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", "--states=all"]
        try:
            answer = run(*command, "--format=%i|%T|%P|%r")
        except OSError as error:
            if not self._silent:
                warn(f"Slurm does not tell how the jobs are ({error}). They go on, and this waits.")
            self._silent = True
            return
        self._silent = False
        self._read(answer, now)

    def _read(self, answer: str, now: float) -> None:
        """Take in what ``squeue`` told."""
        found = dict(line.split("|", 1) for line in answer.splitlines() if "|" in line)
        reasons: List[str] = []
        for job in self._states.keys() - self._done.keys():
            state, partition, reason = found.get(job, "GONE||").split("|", 2)
            self._states[job] = state
            if state not in OVER and state != "GONE":
                self._gone.pop(job, None)
            elif now - self._gone.setdefault(job, now) >= GRACE:
                self._done[job] = state
            if state == "PENDING" and reason not in USUAL:
                reasons.append(reason)
                self._refuse_to_wait(reason, partition)
        told = collections.Counter(reasons)
        for reason in told.keys() - self._told:  # some come and go
            jobs = "1 job waits" if told[reason] == 1 else f"{told[reason]} jobs wait"
            warn(f"{jobs} in Slurm, which tells the reason {reason}.")
        self._told |= told.keys()

    @staticmethod
    def _refuse_to_wait(reason: str, partition: str) -> None:
        """End with a sentence where waiting is of no use."""
        if HOPELESS.fullmatch(reason) and "," not in partition:
            cure = "fewer --minutes" if re.search("Time|Wall", reason) else "other --slurm options"
            raise PluginError(
                f"Slurm will never start these jobs in the partition {partition} ({reason}): give "
                f"{cure} or another --partition."
            )


def refusal(error: BaseException) -> str:
    """What ``sbatch`` said when it took no job, in one line."""
    lines = re.sub(r"(?m)^sbatch: (error: )?", "", str(error)).splitlines()
    return "; ".join(line.strip(" .") for line in lines if line.strip())
