"""examples/steps.sh: what the examples' run.sh have in common."""

import subprocess
from pathlib import Path

import pytest

from tests.support.command_lines import ROOT

EXAMPLES = Path(ROOT) / "examples"


def shell(script: str, *args: object) -> "subprocess.CompletedProcess[str]":
    """Run lines of bash that can use the functions of steps.sh."""
    lines = f"set -euo pipefail\n. '{EXAMPLES}/steps.sh'\n{script}"
    command = ["bash", "-c", lines, "run.sh", *map(str, args)]
    return subprocess.run(command, capture_output=True, encoding="utf-8", timeout=60)


@pytest.mark.parametrize("folder", ["m", "m[1]", "m*", "two words"])
def test_the_newest_checkpoints_are_averaged(tmp_path: Path, folder: str) -> None:
    """In folders whose names look like patterns, too."""
    (tmp_path / "m1").mkdir()
    (tmp_path / "m1" / "checkpoint_1_5.pt").touch()
    where = tmp_path / folder
    where.mkdir()
    script = """specdec-average-checkpoints() { printf '%s\n' "${@:2:$# - 4}"; }
        average_checkpoints "$1" out.pt 2"""

    def averaged() -> list[str]:
        done = shell(script, where)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    (where / "checkpoint_last.pt").touch()
    assert averaged() == [f"{where}/checkpoint_last.pt"]
    for updates in (800, 1000, 1200):
        (where / f"checkpoint_3_{updates}.pt").touch()
    assert averaged() == [f"{where}/checkpoint_3_{updates}.pt" for updates in (1000, 1200)]
