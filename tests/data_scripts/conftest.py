"""Makes the programs of ``data_scripts`` importable, and decodes with the tiny teacher."""

import shutil
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from tests.support.command_lines import SCRIPTS, Corpus

sys.path.insert(0, str(SCRIPTS))


@pytest.fixture()
def shard_args(corpus: Corpus, tiny_verifier: str) -> Callable[..., List[str]]:
    """The arguments of distill_shard.py with the tiny teacher."""

    def arguments(source: Any, output_dir: Any, *more: Any) -> List[str]:
        fixed: List[Any] = [
            corpus.data_dir,
            "-s",
            "en",
            "-t",
            "es",
            "--path",
            tiny_verifier,
            "--cpu",
        ]
        fixed += ["--max-len-b", 20, "--source", source, "--output-dir", output_dir]
        return [str(arg) for arg in (*fixed, *more)]

    return arguments


@pytest.fixture()
def text(corpus: Corpus, tmp_path: Path) -> Path:
    """The tiny corpus under the names of a user's."""
    folder = tmp_path / "text"
    folder.mkdir()
    for theirs, ours in (("train", "train"), ("dev", "valid"), ("test", "test")):
        for language in ("en", "es"):
            lines = Path(corpus.raw_dir) / f"{ours}.{language}"
            shutil.copy(lines, folder / f"{theirs}.{language}")
    return folder
