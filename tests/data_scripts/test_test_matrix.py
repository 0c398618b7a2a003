"""data_scripts/test_matrix.sh: what its command line takes."""

import subprocess
from pathlib import Path

import pytest

from tests.support.command_lines import SCRIPTS


@pytest.mark.parametrize("last", [["d/e/f", "--"], ["d/e/f", "tests"]])
def test_a_command_line_without_tests(tmp_path: Path, last: list[str]) -> None:
    command = ["bash", str(SCRIPTS / "test_matrix.sh"), str(tmp_path), "a/b/c", *last]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert done.returncode == 1
    assert done.stderr == "test_matrix.sh: give -- and TESTS behind the versions.\n"
    assert not [*tmp_path.iterdir()]


def test_a_python_that_is_not_there_is_skipped(tmp_path: Path) -> None:
    command = ["bash", str(SCRIPTS / "test_matrix.sh"), str(tmp_path), "9.9/1/1", "--", "tests"]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "== 9.9/1/1 is skipped: python9.9 is not there\n"
