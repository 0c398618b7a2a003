"""examples/steps.sh: what the examples' run.sh have in common."""

import re
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


def test_an_output_is_kept_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    script = """half() { echo half; return 3; }
        keep_output "$1" half"""
    assert shell(script, path).returncode == 3 and not path.exists()
    assert shell('keep_output "$1" echo whole; keep_output "$1" echo other', path).returncode == 0
    assert path.read_text() == "whole\n"


@pytest.mark.parametrize(
    "path", sorted(EXAMPLES.glob("*/run.sh")), ids=lambda path: path.parent.name
)
def test_no_file_is_copied_in_place_that_stands_for_a_step(path: Path) -> None:
    """A kill would leave a part of it, which later runs would take for the whole."""
    copied = r'\[ -e ("[^"]+") \] \|\|[^\n]* cp "[^"]+" \1\n'
    in_a_block = r'\[ -e ("[^"]+") \] \|\| \{\n(?: {8}[^\n]*\n)* {8}cp "[^"]+" \1\n'
    text = path.read_text("utf-8")
    assert not re.search(copied, text) and not re.search(in_a_block, text)


@pytest.mark.parametrize("name", ["superres", "vocab_clusters"])
def test_a_failed_decoding_is_told_beside_its_log(tmp_path: Path, name: str) -> None:
    script = """device="" output=$1 data=$1 model=$1 plugin=$1 levels=1
        fairseq-generate() { echo broken >&2; return 3; }
        eval "$(sed -n '/^decode() /,/^}/p' "$2")"
        decode name "$3" """
    last = "model" if name == "superres" else tmp_path / "name"
    done = shell(script, tmp_path, EXAMPLES / name / "run.sh", last)
    assert done.returncode == 1
    assert done.stderr == (
        f"run.sh: fairseq-generate failed. See {tmp_path}/name.log, mend it, and run this again.\n"
    )
    assert (tmp_path / "name.log").read_text() == "broken\n"
    assert not (tmp_path / "name.hyp").exists()
