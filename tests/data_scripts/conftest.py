"""Makes the programs of ``data_scripts`` importable, and decodes with the tiny teacher."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List

import pytest

from tests.conftest import ROOT, Corpus

SCRIPTS = Path(ROOT) / "data_scripts"
sys.path.insert(0, str(SCRIPTS))


def run_example(name: str, *args: object, **settings: str) -> "subprocess.CompletedProcess[str]":
    """Run the script of ``examples/name`` with the programs of the tests' environment."""
    path = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    settings = {"PATH": path, "PYTHON": sys.executable, "PYTHONPATH": ROOT, **settings}
    return subprocess.run(
        ["bash", Path(ROOT) / "examples" / name / "run.sh", *map(str, args)],
        env={**os.environ, **settings},
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        timeout=600,
    )


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
