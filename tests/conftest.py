"""A tiny corpus and a tiny verifier, made once a run by fairseq's own command lines."""

import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, List, Sequence

import pytest
import torch
from filelock import FileLock

#: The project's folder, so that ``import specdec_plugin`` finds this package anywhere.
ROOT = str(Path(__file__).resolve().parent.parent)
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


def pytest_configure(config: pytest.Config) -> None:
    """One thread: the models are tiny, and pytest's workers share the cores."""
    torch.set_num_threads(1)


@dataclass(frozen=True)
class Corpus:
    """Sentences of spoken figures, English to Spanish, as text and binarised."""

    raw_dir: str  # train.en, train.es, valid.en, ...
    data_dir: str  # what fairseq-train and fairseq-generate read

    def lines(self, split: str, language: str) -> List[str]:
        return (Path(self.raw_dir) / f"{split}.{language}").read_text("utf-8").splitlines()


def run_cli(
    args: Sequence[Any], *, check: bool = True, **kwargs: Any
) -> "subprocess.CompletedProcess[str]":
    """Run a command line of the environment that the tests run in.

    Args:
        args: the program and its arguments.  ``python`` is this interpreter;
            others (``fairseq-generate``, ``specdec-bench``) are those installed beside it.
        check: fail the test, showing what was printed, unless the exit code is 0.
        kwargs: for :func:`subprocess.run`; ``env`` is added to the environment.

    Returns:
        the finished process with ``stdout`` and ``stderr`` as text.
    """
    program, *rest = map(str, args)
    beside = os.path.dirname(sys.executable)
    found = sys.executable if program == "python" else shutil.which(program, path=beside)
    assert found, f"{program} is not installed in the environment of the tests"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": ROOT}
    environment.update(kwargs.pop("env", {}))
    kwargs.setdefault("timeout", 240)
    if "input" not in kwargs:
        kwargs.setdefault("stdin", subprocess.DEVNULL)
    done = subprocess.run(
        [found, *rest], env=environment, capture_output=True, encoding="utf-8", **kwargs
    )
    if check:
        assert done.returncode == 0, f"{' '.join(map(str, args))}\n{done.stdout}\n{done.stderr}"
    return done


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


def _write_corpus(folder: Path) -> None:
    choose = random.Random(2026)
    raw = folder / "raw"
    raw.mkdir()
    for split, count in SENTENCES.items():
        figures = [
            [choose.randrange(len(ENGLISH)) for _ in range(choose.randint(2, 9))]
            for _ in range(count)
        ]
        for language, words in (("en", ENGLISH), ("es", SPANISH)):
            lines = [" ".join(words[figure] for figure in figures_) for figures_ in figures]
            (raw / f"{split}.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    prefixes = [arg for split in SENTENCES for arg in (f"--{split}pref", raw / split)]
    run_cli(
        ["fairseq-preprocess", "-s", "en", "-t", "es", "--joined-dictionary", "--workers", 1]
        + [*prefixes, "--destdir", folder / "bin"]
    )


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """The tiny corpus; do not write into its folders."""
    folder = once_per_run(tmp_path_factory, "corpus", _write_corpus)
    return Corpus(raw_dir=str(folder / "raw"), data_dir=str(folder / "bin"))


@pytest.fixture(scope="session")
def tiny_verifier(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of a fairseq checkpoint, trained a few updates; do not write beside it."""

    def build(folder: Path) -> None:
        run_cli(train_args(corpus.data_dir, folder, "--max-update", 60))

    return str(once_per_run(tmp_path_factory, "tiny_verifier", build) / "checkpoint_last.pt")


def drafter_train_args(data_dir: Any, save_dir: Any, verifier: Any, *more: Any) -> List[str]:
    """The command line that trains a tiny drafter which shares its verifier's encoder."""
    fixed = ["fairseq-train", data_dir, "--user-dir", PLUGIN, "--task", "block_nat_translation"]
    fixed += [*TINY_MODEL, *TINY_TRAINING, "--arch", "block_nat", "--block-size", 4]
    fixed += ["--criterion", "glancing_block_loss", "--share-encoder", "--verifier-path", verifier]
    return [str(arg) for arg in (*fixed, "--save-dir", save_dir, *more)]


@pytest.fixture(scope="session")
def tiny_drafter(
    corpus: Corpus, tiny_verifier: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Path of a drafter for ``tiny_verifier``, trained a few updates from a warm start."""

    def build(folder: Path) -> None:
        init = folder / "init.pt"
        run_cli(
            ["specdec-init-drafter", corpus.data_dir, "-s", "en", "-t", "es", "--share-encoder"]
            + ["--verifier", tiny_verifier, "--output", init, "--block-size", 4]
        )
        more = ["--finetune-from-model", init, "--max-update", 60]
        run_cli(drafter_train_args(corpus.data_dir, folder, tiny_verifier, *more))

    return str(once_per_run(tmp_path_factory, "tiny_drafter", build) / "checkpoint_last.pt")


#: k of the tiny proposal heads.
HEADS = 4


def blockwise_train_args(data_dir: Any, save_dir: Any, *more: Any) -> List[str]:
    """The command line that trains tiny proposal heads."""
    fixed = ["fairseq-train", data_dir, "--user-dir", PLUGIN, "--task", "blockwise_translation"]
    fixed += [*TINY_TRAINING, "--arch", "blockwise_transformer", "--block-size", HEADS]
    fixed += ["--criterion", "blockwise_cross_entropy", "--dropout", 0, "--save-dir", save_dir]
    return [str(arg) for arg in (*fixed, *more)]


@pytest.fixture(scope="session")
def tiny_heads(corpus: Corpus, tiny_verifier: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Path of heads alone for ``tiny_verifier``, trained a few updates."""

    def build(folder: Path) -> None:
        more = ["--verifier-path", tiny_verifier, "--frozen-base", "--max-update", 60]
        run_cli(blockwise_train_args(corpus.data_dir, folder, *more, "--heads", "separate"))

    return str(once_per_run(tmp_path_factory, "tiny_heads", build) / "checkpoint_last.pt")


@pytest.fixture(scope="session")
def tiny_blockwise(
    corpus: Corpus, tiny_verifier: str, tmp_path_factory: pytest.TempPathFactory
) -> str:
    """Path of a blockwise Transformer, fine-tuned from ``tiny_verifier``."""

    def build(folder: Path) -> None:
        more = ["--verifier-path", tiny_verifier, "--max-update", 90]
        run_cli(blockwise_train_args(corpus.data_dir, folder, *more))

    return str(once_per_run(tmp_path_factory, "tiny_blockwise", build) / "checkpoint_last.pt")
