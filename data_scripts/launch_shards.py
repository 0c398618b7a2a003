"""Run all shards of ``distill_shard.py`` as jobs of submitit: of Slurm, or on this machine.

A shard's file holds all that was decoded, so a job that was killed simply begins again.
"""

import argparse
import os
import re
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import distill_shard
import slurm_queue
import torch
from shardfile import shard_path

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.interrupts import end_in_a_line
from specdec_plugin.outputs import alone
from specdec_plugin.progress import Progress

HERE = os.path.dirname(os.path.abspath(__file__))

#: How often in a row a shard may end without getting further.
FRUITLESS = 5

#: Seconds until Slurm is asked again to take jobs that it refused, while others run.
LATER = 60.0

#: submitit's own limit on the time limits that a job reaches, which ours replaces.
MANY = 10**6

#: submitit's options of Slurm that this program sets, with what to do instead.
OURS = {
    "time": "give --minutes instead",
    "array_parallelism": "give --jobs instead",
    "job_name": "leave it out, as jobs have a fixed name",
    "nodes": "leave it out, as a shard is one process; give more --shards",
    "ntasks_per_node": "leave it out, as a shard is one process; give more --shards",
}

#: Those of which each is a line of the job's script, or an argument.
COMMANDS = ("setup", "teardown", "srun_args")

DESCRIPTION = """\
Run the shards of distill_shard.py as jobs, and wait for them.

--launcher submitit makes them a job array of Slurm. A job that is preempted or
reaches its time limit is queued again and resumes. --launcher local runs them on
this machine. A job that is killed is started again, as long as its shard gets
further. When this program ends, also by Ctrl-C, its jobs are cancelled. The same
command resumes them.

All other options are those of distill_shard.py."""

EXAMPLES = """\
examples:
  python data_scripts/launch_shards.py --launcher submitit --partition gpu --shards 200 \\
      bin/ -s en -t es --path teacher.pt --source pieces/train.en --output-dir shards/
  python data_scripts/launch_shards.py --launcher local --jobs 2 --shards 8 \\
      bin/ -s en -t es --path teacher.pt --source pieces/train.en --output-dir shards/ --cpu"""


def get_parser() -> argparse.ArgumentParser:
    """The options that are not those of distill_shard.py, but for two that are read here too."""
    parser = argparse.ArgumentParser(
        prog="launch_shards.py",
        usage="%(prog)s --launcher NAME --shards N [options] [OPTIONS OF distill_shard.py]",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--launcher",
        required=True,
        choices=["submitit", "local"],
        help="submitit: a job array of Slurm; local: jobs on this machine",
    )
    parser.add_argument("--shards", type=int, required=True, metavar="N", help="how many")
    parser.add_argument("--output-dir", required=True, metavar="DIR", help="where their files are")
    parser.add_argument(
        "--jobs",
        type=int,
        metavar="N",
        help="jobs at a time (default: all with submitit, 1 with local)",
    )
    parser.add_argument(
        "--minutes", type=int, default=240, metavar="N", help="a job's time limit (default: 240)"
    )
    parser.add_argument("--partition", metavar="NAME", help="of Slurm")
    parser.add_argument(
        "--slurm",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="another option of Slurm, with the name that submitit gives it, such as "
        "cpus_per_task=8, mem=32GB or account=mt (default: gpus_per_node=1, unless --cpu is given)",
    )
    return parser


class Shard:
    """A job: decode one shard. Slurm's signals find :meth:`checkpoint`."""

    def __init__(self, number: int, arguments: Sequence[str]) -> None:
        self.number = number
        self.queued_again = False
        self.arguments = [*arguments, "--shard", str(number), "--wait"]

    def __call__(self) -> Optional[str]:
        """None, or the user's mistake in a sentence, which no repetition mends."""
        self.queued_again = False
        gpus = torch.cuda.device_count()
        if gpus > 1:  # all jobs see those of this machine, and each takes one
            torch.cuda.set_device(self.number % gpus)
        try:
            distill_shard.main(self.arguments)
        except PluginError as mistake:
            return str(mistake)
        finally:
            if self.queued_again:  # on its way, submitit's exit may have become another error
                os._exit(1)
        return None

    def checkpoint(self) -> Any:
        """What is queued when this job is preempted: the same, as its file holds what is done."""
        from submitit.helpers import DelayedSubmission

        self.queued_again = True
        return DelayedSubmission(self)


def make_executor(args: argparse.Namespace, uses_gpu: bool) -> Any:
    """submitit's executor, which writes its logs into ``jobs/`` beside the shards."""
    try:
        import submitit
    except ImportError:
        raise PluginError(
            f"--launcher {args.launcher} needs the package submitit: "
            "pip install 'specdec-plugin[slurm]'."
        ) from None
    # A job finds this module and those that it imports.
    path = [HERE, *filter(None, [os.environ.get("PYTHONPATH")])]
    os.environ["PYTHONPATH"] = os.pathsep.join(path)
    folder = os.path.join(args.output_dir, "jobs")
    if args.launcher == "local":
        if args.partition or args.slurm:
            raise PluginError("--partition and --slurm belong to --launcher submitit.")
        executor: Any = submitit.LocalExecutor(folder, max_num_timeout=MANY)
        gpus = torch.cuda.device_count() if uses_gpu else 0
        executor.update_parameters(timeout_min=args.minutes, gpus_per_node=gpus)
        return executor
    try:
        executor = submitit.SlurmExecutor(folder, max_num_timeout=MANY)
    except RuntimeError:
        raise PluginError(
            "--launcher submitit: srun was not found, so this machine belongs to no Slurm cluster. "
            "Use --launcher local."
        ) from None
    submitit.SlurmJob.watcher = slurm_queue.Queue()
    submitit.SlurmJob._results_timeout_s = 0  # the queue waits for the result, of all jobs at once
    options = slurm_options(args, uses_gpu)
    try:
        executor.update_parameters(
            job_name="specdec-shards",
            time=args.minutes,
            array_parallelism=args.jobs or args.shards,
            **options,
        )
    except (TypeError, ValueError) as error:
        raise PluginError(f"--slurm: {error}") from None
    return executor


def slurm_options(args: argparse.Namespace, uses_gpu: bool) -> Dict[str, Any]:
    """``--partition`` and ``--slurm``, as submitit takes them."""
    found: Dict[str, Any] = {"gpus_per_node": 1} if uses_gpu else {}
    if args.partition:
        found["partition"] = args.partition
    for option in args.slurm:
        name, equals, value = option.partition("=")
        name = name.replace("-", "_")
        if not equals:
            raise PluginError(f"--slurm {option}: write NAME=VALUE, such as cpus_per_task=8.")
        if name in OURS:
            raise PluginError(f"--slurm {option}: {OURS[name]}.")
        if name in COMMANDS:
            found.setdefault(name, []).append(value)
        else:
            found[name] = int(value) if value.isdigit() else value
    return found


class Run:
    """All shards, some of them running.

    Args:
        executor: submitit's, or another with ``batch`` and ``submit``.
        shards: what is to be done.
        at_once: how many are submitted at a time; None: all.
        size: a number that grows while a shard gets further.
        cancel: ends jobs that are running or waiting.
    """

    def __init__(
        self,
        executor: Any,
        shards: Sequence[Shard],
        at_once: Optional[int],
        size: Callable[[Shard], int],
        cancel: Callable[[List[Any]], None],
    ) -> None:
        self._executor = executor
        self._waiting = list(shards)
        self._at_once = at_once or len(shards)
        self._size, self._cancel = size, cancel
        #: When jobs may be submitted again.
        self._next = float("-inf")
        self._jobs: List[Tuple[Shard, Any]] = []
        #: By shard, its size when it was last submitted, and how often it was the same before.
        self._tries: Dict[int, Tuple[int, int]] = {}

    def finish(self, seconds: float = 1.0) -> None:
        """Return when all shards are decoded; ``seconds`` lie between two looks."""
        try:
            with Progress(desc="shards", unit="shard", total=len(self._waiting)) as bar:
                while self._waiting or self._jobs:
                    self._submit()
                    time.sleep(seconds)
                    bar.update(self._collect())
        finally:
            self._cancel([job for _, job in self._jobs])

    def _submit(self) -> None:
        """Submit as many as there is room for, as one array."""
        shards = self._waiting[: self._at_once - len(self._jobs)]
        if not shards or time.monotonic() < self._next:
            return
        try:
            with self._executor.batch():
                submitted = [(shard, self._executor.submit(shard)) for shard in shards]
        except FileNotFoundError as error:
            if error.filename != "sbatch":
                raise
            raise PluginError(
                "--launcher submitit: sbatch was not found, so this machine submits no jobs. Run "
                "the command on one that does, such as the login node, or use --launcher local."
            ) from None
        except RuntimeError as error:  # what sbatch said
            self._refused(slurm_queue.refusal(error))
            return
        self._waiting = self._waiting[len(shards) :]
        self._jobs += submitted  # before, submitit's jobs cannot be cancelled

    def _refused(self, why: str) -> None:
        """Submit later, if that may help: there may be too many jobs, or Slurm starts again."""
        if not self._jobs:
            cure = "Change --partition, --minutes or --slurm"
            if "job array" in why:
                cure = "Give fewer --shards"
            if "gres" in why:
                cure += ", or add --cpu where there is no GPU"
            raise PluginError(f"Slurm took no job ({why}). {cure}, and run the command again.")
        slurm_queue.warn(f"Slurm took no job ({why}). In a minute it is asked again.")
        self._next = time.monotonic() + LATER

    def _collect(self) -> int:
        """Of the jobs that have ended, the number that are done; others begin again."""
        ended = [each for each in self._jobs if each[1].done()]
        self._jobs = [each for each in self._jobs if each not in ended]
        return sum(self._is_done(shard, job) for shard, job in ended)

    def _is_done(self, shard: Shard, job: Any) -> bool:
        problem = job.exception()
        if problem is None:
            if job.result() is not None:
                raise PluginError(f"shard {shard.number}: {job.result()}")
            return True
        size = self._size(shard)
        before, same = self._tries.get(shard.number, (-1, 0))
        same = same + 1 if size == before else 1
        self._tries[shard.number] = size, same
        last = last_line(problem)
        if same > FRUITLESS:
            raise PluginError(
                f"shard {shard.number} ended {same} times without getting further ({last}). Its "
                f"log is {job.paths.stderr}. The same command resumes all shards."
            )
        slurm_queue.warn(
            f"shard {shard.number} begins again, where it was ({last}); see {job.paths.stderr}"
        )
        self._waiting.append(shard)
        return False


def last_line(problem: Exception) -> str:
    """What a job's error ends with: of submitit's, a trace is between two lines of hyphens."""
    trace = re.search(r"-{20,}\n(.*?)\n-{20,}", str(problem), re.DOTALL)
    text = trace[1] if trace else str(problem)
    return ([line.strip() for line in text.splitlines() if line.strip()] or [repr(problem)])[-1]


def cancel_each(jobs: List[Any]) -> None:
    """End jobs of this machine."""
    for job in jobs:
        job.cancel(check=False)


def heed_signals() -> None:
    """Let what ends a session or a batch job end this program as Ctrl-C does.

    A script's program in the background ignores Ctrl-C. Its jobs would, too, and submitit cancels
    those of this machine by that signal: so this program heeds it, and does nothing.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, lambda number, frame: None)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # nohup ignores one
            signal.signal(number, signal.default_int_handler)


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program."""
    args, rest = get_parser().parse_known_args(argv)
    for name in ("shards", "jobs", "minutes"):
        given = getattr(args, name)
        if given is not None and given < 1:
            raise PluginError(f"--{name} {given}: give 1 or more.")
    rest += ["--shards", str(args.shards), "--output-dir", args.output_dir]
    shards = [Shard(number, rest) for number in range(args.shards)]
    executor = make_executor(args, uses_gpu="--cpu" not in rest)

    def size(shard: Shard) -> int:
        path = shard_path(args.output_dir, shard.number, args.shards)
        return os.path.getsize(path) if os.path.exists(path) else 0

    # Slurm itself holds back what is more than --jobs of an array.
    local = args.launcher == "local"
    at_once, cancel = ((args.jobs or 1), cancel_each) if local else (None, slurm_queue.cancel)
    with alone(os.path.join(args.output_dir, "jobs"), "launched"):
        Run(executor, shards, at_once, size, cancel).finish()
    print(f"{args.output_dir}: {args.shards} shards are decoded.")


if __name__ == "__main__":
    end_in_a_line("the jobs are cancelled, and the same command resumes them.")
    heed_signals()
    main()
