"""The command lines of fairseq and of this package, and a tiny corpus for them."""

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Callable, List, Mapping, Sequence, Tuple

import pytest
from filelock import FileLock

from .fork_server import ForkServer
from .stand_ins import stand_ins

#: The project's folder, so that ``import specdec_plugin`` finds this package anywhere.
ROOT = str(Path(__file__).resolve().parents[2])
#: What to hand to ``--user-dir``.
PLUGIN = os.path.join(ROOT, "specdec_plugin")
#: The shape and training of every tiny model; give other flags after these to override.
TINY_MODEL = (
    "--arch transformer --share-all-embeddings --dropout 0 "
    "--encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 "
    "--encoder-attention-heads 2 --decoder-layers 1 --decoder-embed-dim 16 "
    "--decoder-ffn-embed-dim 32 --decoder-attention-heads 2"
).split()
# Without a buffer: fairseq's thread that fills it may still run when training has ended, and then
# the interpreter, which stops threads as it ends, now and then aborts.
TINY_TRAINING = (
    "--cpu --optimizer adam --lr 0.02 --max-tokens 400 --seed 1 --num-workers 0 "
    "--data-buffer-size 0 "
    "--no-epoch-checkpoints --no-progress-bar --disable-validation --log-interval 1000"
).split()
ENGLISH = "zero one two three four five six seven eight nine and minus".split()
SPANISH = "cero uno dos tres cuatro cinco seis siete ocho nueve y menos".split()
SENTENCES = {"train": 240, "valid": 20, "test": 21}  # 21: the last batch of 8 is never full


@dataclass(frozen=True)
class Corpus:
    """Sentences of spoken figures, English to Spanish, as text and binarised."""

    raw_dir: str  # train.en, train.es, valid.en, ...
    data_dir: str  # what fairseq-train and fairseq-generate read

    def lines(self, split: str, language: str) -> List[str]:
        return (Path(self.raw_dir) / f"{split}.{language}").read_text("utf-8").splitlines()


#: Of every program that the tests start.
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
_SERVER = ForkServer(ENVIRONMENT)


def run_cli(
    args: Sequence[Any],
    *,
    check: bool = True,
    fresh: bool = False,
    env: Mapping[str, str] = MappingProxyType({}),
    cwd: Any = None,
    input: str = "",
    errors: str = "strict",
    timeout: float = 240,
) -> "subprocess.CompletedProcess[str]":
    """Run a command line of the environment that the tests run in.

    Args:
        args: the program and its arguments.  ``python`` is this interpreter;
            others (``fairseq-generate``, ``specdec-bench``) are those installed beside it.
        check: fail the test, showing what was printed, unless the exit code is 0.
        fresh: start a new process, and not a copy of one that has imported fairseq. Only there
            the interpreter takes all modules apart at the end.
        env: is added to the environment.
        cwd: the working directory; by default the test's own.
        input: what the program reads.
        errors: how input and output are encoded where they are no UTF-8.
        timeout: seconds after which it is killed, with :class:`subprocess.TimeoutExpired`.

    Returns:
        the finished process with ``stdout`` and ``stderr`` as text.
    """
    program, *rest = map(str, args)
    beside = os.path.dirname(sys.executable)
    found = sys.executable if program == "python" else shutil.which(program, path=beside)
    assert found, f"{program} is not installed in the environment of the tests"
    command, environment, given = (
        [found, *rest],
        {**ENVIRONMENT, **env},
        input.encode(errors=errors),
    )
    if fresh or sys.platform != "linux":
        done = subprocess.run(
            command, env=environment, cwd=cwd, input=given, timeout=timeout, capture_output=True
        )
    else:
        done = _SERVER.run(command, environment, cwd, given, timeout)
    stdout, stderr = (text.decode(errors=errors) for text in (done.stdout, done.stderr))
    if check:
        assert done.returncode == 0, f"{' '.join(map(str, args))}\n{stdout}\n{stderr}"
    return subprocess.CompletedProcess(done.args, done.returncode, stdout, stderr)


def generate_args(data_dir: Any, checkpoint: Any, *more: Any) -> List[str]:
    """The command line that decodes the test set with the plugin's task."""
    fixed = ["fairseq-generate", data_dir, "--user-dir", PLUGIN, "--task", "specdec_translation"]
    fixed += ["--path", checkpoint, "--beam", 1, "--cpu", "--num-workers", 0, "--max-len-b", 20]
    return [str(arg) for arg in (*fixed, *more)]


def train_args(data_dir: Any, save_dir: Any, *more: Any) -> List[str]:
    """The command line that trains a tiny model with the plugin's task."""
    fixed = ["fairseq-train", data_dir, "--user-dir", PLUGIN, "--task", "specdec_translation"]
    fixed += [*TINY_MODEL, *TINY_TRAINING, "--save-dir", save_dir]
    return [str(arg) for arg in (*fixed, *more)]


def hypotheses(printed: str) -> List[str]:
    """The H- lines of fairseq-generate, without scores, in the order of the input."""
    found = (line.split("\t") for line in printed.splitlines() if line.startswith("H-"))
    return [text for _, text in sorted((int(name[2:]), text) for name, _, text in found)]


def once_per_run(factory: pytest.TempPathFactory, name: str, build: Callable[[Path], None]) -> Path:
    """A folder that ``build`` fills once, though several pytest workers ask for it."""
    base = factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    folder = shared / name
    with FileLock(str(shared / f"{name}.lock")):
        if not (folder / ".done").exists():
            folder.mkdir(exist_ok=True)
            build(folder)
            (folder / ".done").touch()
    return folder


def drafter_train_args(data_dir: Any, save_dir: Any, verifier: Any, *more: Any) -> List[str]:
    """The command line that trains a tiny drafter which shares its verifier's encoder."""
    fixed = ["fairseq-train", data_dir, "--user-dir", PLUGIN, "--task", "block_nat_translation"]
    fixed += [*TINY_MODEL, *TINY_TRAINING, "--arch", "block_nat", "--block-size", 4]
    fixed += ["--criterion", "glancing_block_loss", "--share-encoder", "--verifier-path", verifier]
    return [str(arg) for arg in (*fixed, "--save-dir", save_dir, *more)]


#: k of the tiny proposal heads.
HEADS = 4


def blockwise_train_args(data_dir: Any, save_dir: Any, *more: Any) -> List[str]:
    """The command line that trains tiny proposal heads."""
    fixed = ["fairseq-train", data_dir, "--user-dir", PLUGIN, "--task", "blockwise_translation"]
    fixed += [*TINY_TRAINING, "--arch", "blockwise_transformer", "--block-size", HEADS]
    fixed += ["--criterion", "blockwise_cross_entropy", "--dropout", 0, "--save-dir", save_dir]
    return [str(arg) for arg in (*fixed, *more)]


TRACEBACK = "Traceback (most recent call last)"


def scored(printed):
    """Hypotheses with scores by sentence, from H- lines."""
    lines = (line.split("\t") for line in printed.splitlines() if line.startswith("H-"))
    return {int(name[2:]): (float(score), text) for name, score, text in lines}


def hypothesis_lines(printed: str) -> List[Tuple[str, float, str]]:
    """Number, score to 1e-3 and text of every H- line, in the order of the corpus."""
    lines = [line.split("\t") for line in printed.splitlines() if line.startswith("H-")]
    lines.sort(key=lambda each: int(each[0][2:]))  # stable: the order of a list stays
    return [(name, round(float(score), 3), text) for name, score, text in lines]


SCRIPTS = Path(ROOT) / "data_scripts"


def directions(corpus: "Corpus", folder: Path) -> Path:
    """The folder with the tiny corpus as en-es, and once more as en-fr."""
    for target in ("es", "fr"):
        pair = folder / f"en-{target}"
        pair.mkdir(parents=True)
        for theirs, ours in (("train", "train"), ("dev", "valid"), ("test", "test")):
            for language, name in (("en", "en"), ("es", target)):
                shutil.copy(Path(corpus.raw_dir) / f"{ours}.{language}", pair / f"{theirs}.{name}")
    return folder


def run_example(
    name: str, *args: object, forked: bool = False, **settings: str
) -> "subprocess.CompletedProcess[str]":
    """Run the script of ``examples/name`` with the programs of the tests' environment.

    Args:
        name: of the example.
        args: of the script.
        forked: run its Python programs in copies of one process; see :mod:`.stand_ins`.
        settings: variables.
    """
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    settings = {"PATH": path, "PYTHON": sys.executable, "PYTHONPATH": ROOT, **settings}
    with stand_ins(_SERVER) if forked else contextlib.nullcontext("") as folder:
        if folder:
            settings["PATH"] = folder + os.pathsep + settings["PATH"]
            settings["PYTHON"] = os.path.join(folder, "python")
        return subprocess.run(
            ["bash", Path(ROOT) / "examples" / name / "run.sh", *map(str, args)],
            env={**os.environ, **settings},
            capture_output=True,
            encoding="utf-8",
            stdin=subprocess.DEVNULL,
            timeout=600,
        )
