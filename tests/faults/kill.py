"""Ends programs with SIGKILL at random moments, and resumes them: ``python -m tests.faults.kill``.

What a program leaves under a final name must be complete at any moment. When the same command has
run again, the output must be that of a run that nobody ended. In a part of the runs the file that
was written last, if it is no output, loses its end, as after a loss of power.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch

from specdec_plugin.fairseq_compat.checkpoints import load_weights
from specdec_plugin.progress import Progress
from tests.conftest import _write_corpus
from tests.support.command_lines import (
    SCRIPTS,
    blockwise_train_args,
    drafter_train_args,
    run_cli,
    train_args,
)

#: Output that a program writes again and again; it is whole, but not yet the last.
MOVING = ("checkpoint_last.pt",)
#: Output by name: what two runs must have alike.
Output = Dict[str, str]


class Inputs(NamedTuple):
    """What all programs read."""

    folder: Path

    @property
    def data(self) -> str:
        """Binarised sentences."""
        return str(self.folder / "bin")

    @property
    def model(self) -> str:
        """A trained checkpoint."""
        return str(self.folder / "model" / "checkpoint_last.pt")

    @classmethod
    def make(cls, folder: Path) -> "Inputs":
        """Write all of them."""
        made = cls(folder)
        _write_corpus(folder)
        run_cli(train_args(made.data, folder / "model", "--max-update", 30))
        return made


class Program(NamedTuple):
    """What is ended and resumed.

    Attributes:
        commands: command lines that run one after another, and write into a folder.
        output: reads the final files that exist in a folder, and fails on one that is not whole.
    """

    commands: Callable[[Inputs, Path], List[List[Any]]]
    output: Callable[[Path], Output]


def _bytes_of(*patterns: str) -> Callable[[Path], Output]:
    def read(folder: Path) -> Output:
        paths = [path for pattern in patterns for path in folder.glob(pattern)]
        return {
            str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in paths
            if path.is_file() and path.suffix not in (".log", ".tmp")
        }

    return read


def _weights(folder: Path) -> Output:
    """Parameters and optimizer of checkpoints; beside them, checkpoints hold times."""
    found = {}
    for path in folder.glob("checkpoint*.pt"):
        state = load_weights(str(path))
        parts = {**state["model"], **_flat(state["last_optimizer_state"]["state"])}
        digest = hashlib.sha256()
        for name in sorted(parts):
            value = parts[name]
            digest.update(name.encode())
            digest.update(
                value.numpy().tobytes() if torch.is_tensor(value) else repr(value).encode()
            )
        found[path.name] = digest.hexdigest()
    return found


def _flat(state: Any) -> Dict[str, Any]:
    return {f"{a}.{b}": value for a, each in state.items() for b, value in each.items()}


def _benchmark(folder: Path) -> Output:
    """Hypotheses of the journal, once the report is written; beside them there are times."""
    report = folder / "results.json"
    if not report.exists():
        return {}
    rows = json.loads(report.read_text("utf-8"))["rows"]
    (journal,) = folder.glob("*.jsonl")
    lines = [json.loads(line) for line in journal.read_text("utf-8").splitlines()[1:]]
    tokens = {f"{line['batch']} {line['method']}": line["tokens"] for line in lines}
    return {
        "report": str([row["method"] for row in rows]),
        "hypotheses": json.dumps(tokens, sort_keys=True),
    }


def _distil(inputs: Inputs, folder: Path) -> List[List[Any]]:
    source = inputs.folder / "raw" / "train"
    shard = ["python", SCRIPTS / "distill_shard.py", inputs.data, "-s", "en", "-t", "es", "--cpu"]
    shard += ["--path", inputs.model, "--source", f"{source}.en", "--max-len-b", 20]
    shard += ["--output-dir", folder / "shards", "--batch-size", 8, "--shards", 2, "--shard", 0, 1]
    finish = ["python", SCRIPTS / "finish_distillation.py", inputs.data, "--train", source]
    return [shard, [*finish, "-s", "en", "-t", "es", "--output", folder]]


def _cluster(inputs: Inputs, folder: Path) -> List[List[Any]]:
    command = ["specdec-cluster-vocab", inputs.data, "-s", "en", "-t", "es", "--cpu"]
    command += ["--path", inputs.model, "--gen-subset", "train", "--max-tokens", 60]
    command += ["--clusters", 8, "--output", folder / "clusters.pt"]
    return [command]


def _bench(inputs: Inputs, folder: Path) -> List[List[Any]]:
    command = ["specdec-bench", inputs.data, "-s", "en", "-t", "es", "--path", inputs.model]
    command += ["--max-len-b", 20, "--batch-size", 1, "--methods", "fairseq beam 1,greedy,jacobi"]
    return [[*command, "--threads", 1, "--output", folder, "--resume"]]


def _average(inputs: Inputs, folder: Path) -> List[List[Any]]:
    command = ["specdec-average-checkpoints", "--inputs", inputs.model, inputs.model]
    return [[*command, "--output", folder / "average.pt"]]


def _often(command: List[str]) -> List[str]:
    """Train some epochs, with checkpoints of each, which fairseq copies to checkpoint_last.pt."""
    kept = [each for each in command if each != "--no-epoch-checkpoints"]
    return [*kept, "--max-epoch", "8", "--save-interval-updates", "7"]


PROGRAMS: Dict[str, Program] = {
    "distil": Program(_distil, _bytes_of("distilled/*", "filtered/*", "bin/*")),
    "cluster": Program(_cluster, _bytes_of("clusters.pt")),
    "bench": Program(_bench, _benchmark),
    "average": Program(_average, _bytes_of("average.pt")),
    "drafter": Program(
        lambda inputs, folder: [_often(drafter_train_args(inputs.data, folder, inputs.model))],
        _weights,
    ),
    "heads": Program(
        lambda inputs, folder: [
            _often(blockwise_train_args(inputs.data, folder, "--verifier-path", inputs.model))
        ],
        _weights,
    ),
}


def _run(program: Program, inputs: Inputs, folder: Path, seconds: float = 600) -> bool:
    """Run a program; False if it was killed after so many seconds."""
    end = time.monotonic() + seconds
    for command in program.commands(inputs, folder):
        try:
            run_cli(command, timeout=max(0.01, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
    return True


def _cut_last(folder: Path, final: Output, random: Random) -> None:
    """Take the end of the file that was written last, if it is no output."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    last = max(paths, key=lambda path: path.stat().st_mtime_ns, default=None)
    if last is not None and str(last.relative_to(folder)) not in final:
        size = last.stat().st_size
        os.truncate(last, max(0, size - random.randrange(1, 200)))


def attack(
    program: Program, inputs: Inputs, kills: int, random: Random, bar: Progress
) -> List[str]:
    """End a program so often; what was wrong afterwards."""
    wrong = []
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name) / "whole"
        whole.mkdir()
        begin = time.monotonic()
        _run(program, inputs, whole)
        seconds, expected = time.monotonic() - begin, program.output(whole)
        assert expected, "the program writes nothing"
        for number in range(kills):
            folder = Path(name) / str(number)
            folder.mkdir()
            moment, again = random.uniform(0, seconds), random.uniform(0, seconds)
            try:
                for after in (moment, again):
                    if not _run(program, inputs, folder, after):
                        found = program.output(folder)
                        _compare(found, expected, partly=True)
                        if random.random() < 0.3:
                            _cut_last(folder, found, random)
                _run(program, inputs, folder)
                _compare(program.output(folder), expected)
            except Exception as error:
                lines = [line for line in str(error).splitlines() if line.strip()]
                wrong.append(f"after {moment:.2f} s and {again:.2f} s: {' / '.join(lines[-3:])}")
            bar.update()
    return wrong


def _compare(found: Output, expected: Output, partly: bool = False) -> None:
    for name, value in sorted(found.items()):
        moving = partly and name in MOVING
        if value != expected.get(name, value) and not moving:
            raise ValueError(f"{name} differs" + (" or is not whole" if partly else ""))
    missing = sorted({*expected} - {*found})
    if missing and not partly:
        raise ValueError(f"{missing[0]} is missing")


def main(argv: Optional[List[str]] = None) -> None:
    """Run the program; the exit status is 1 if anything was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults.kill", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of each (default: %(default)s)")
    parser.add_argument("--program", nargs="+", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    args = parser.parse_args(argv)
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        inputs = Inputs.make(Path(folder))
        with Progress(total=args.kills * len(args.program), unit="run") as bar:
            for name in args.program:
                random = Random(f"{name} {args.seed}")
                wrong = attack(PROGRAMS[name], inputs, args.kills, random, bar)
                failed |= bool(wrong)
                right = args.kills - len(wrong)
                print(f"{name}: {right} of {args.kills} resumed to the same output", flush=True)
                for each in wrong:
                    print(f"    {each}", flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
