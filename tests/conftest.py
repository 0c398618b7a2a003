"""A tiny corpus and a tiny verifier, made once a run by fairseq's own command lines."""

import gc
import io
import logging
import random
from pathlib import Path
from typing import Iterator, List

import hypothesis
import pytest
import sentencepiece
import torch

from specdec_plugin.cli import pack
from specdec_plugin.engine import Backend, GraphBackend, NativeBackend, TorchBackend, native
from tests.support import quick_hydra
from tests.support.command_lines import (
    ENGLISH,
    SENTENCES,
    SPANISH,
    Corpus,
    blockwise_train_args,
    drafter_train_args,
    once_per_run,
    run_cli,
    train_args,
)

# How long an example takes depends on what else the machine does.
hypothesis.settings.register_profile("without deadlines", deadline=None)
hypothesis.settings.load_profile("without deadlines")


def pytest_configure(config: pytest.Config) -> None:
    """One thread: the models are tiny, and pytest's workers share the cores."""
    torch.set_num_threads(1)
    quick_hydra.install()


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Whole examples take minutes, and longer on a machine that does something else."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(1200))


@pytest.fixture
def seeded() -> None:
    """PyTorch's random numbers are the same in each run."""
    torch.manual_seed(1)


@pytest.fixture
def threads_again() -> Iterator[None]:
    """Behind the test, PyTorch has as many threads as before."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", params=["native", "torch", "graphs"])
def backend(request: pytest.FixtureRequest) -> Backend:
    """Run the test on the native kernels, on PyTorch's operators, and on a GPU's static tensors."""
    if request.param != "native":
        return TorchBackend() if request.param == "torch" else GraphBackend()
    assert native.library() is not None, "the tests need a C++ compiler"
    return NativeBackend()


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
        run_cli(train_args(corpus.data_dir, folder, "--max-update", 60), fresh=True)

    return str(once_per_run(tmp_path_factory, "tiny_verifier", build) / "checkpoint_last.pt")


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


@pytest.fixture(scope="session")
def sentencepieces(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a SentencePiece model of the corpus' words, and dictionaries with its marks."""
    folder = tmp_path_factory.mktemp("pieces")
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([*corpus.lines("train", "en"), *corpus.lines("train", "es")]),
        model_writer=model,
        model_type="word",
        vocab_size=27,
        minloglevel=2,
    )
    (folder / "spm.model").write_bytes(model.getvalue())
    for language in ("en", "es"):
        name = f"dict.{language}.txt"
        lines = (Path(corpus.data_dir) / name).read_text("utf-8").splitlines()
        marked = [line if line.startswith("madeupword") else "▁" + line for line in lines]
        (folder / name).write_text("\n".join(marked) + "\n", "utf-8")
    return folder


@pytest.fixture(scope="session")
def packed(
    sentencepieces: Path, tiny_verifier: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder of specdec-pack with ``tiny_verifier``, for raw text."""
    folder = tmp_path_factory.mktemp("packed")
    pack.main(
        [*"-s en -t es --language-name en=English --option max_len_b=20 --path".split()]
        + [tiny_verifier, "--data", str(sentencepieces), "--output", str(folder)]
        + ["--sentencepiece", str(sentencepieces / "spm.model")]
    )
    return folder


def pytest_unconfigure() -> None:
    """Generators that outlive the tests report to a stream that pytest has closed."""
    logging.raiseExceptions = False


def pytest_collection_finish() -> None:
    """Keep the garbage collector away from modules and tests, which live as long as the process."""
    gc.freeze()
