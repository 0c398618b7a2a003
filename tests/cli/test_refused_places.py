"""Outputs that cannot be written: each program says so in a sentence, before it loads anything."""

import pytest

from tests.support.command_lines import TRACEBACK, run_cli

DATA = "none -s en -t es"
#: By program: its arguments before the output, and whether that is a folder.
PROGRAMS = {
    "specdec-average-checkpoints": ("--inputs none.pt --output", False),
    "specdec-init-drafter": (f"{DATA} --verifier none.pt --output", False),
    "specdec-cluster-vocab": (f"{DATA} --path none.pt --cpu --output", False),
    "specdec-import": ("none --from transformers --output", True),
    "specdec-pack": (f"{DATA[5:]} --path none.pt --output", True),
    "specdec-ddgviz": (f"{DATA} --path none.pt --ids 1 --output", True),
    "specdec-check": (f"{DATA} --path none.pt --output", True),
    "specdec-bench": (f"{DATA} --path none.pt --methods greedy --output", True),
    "specdec-generate": (f"{DATA} --path none.pt --results-path", True),
}


@pytest.mark.parametrize("place", ["below a file", "of the other kind"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_an_output_that_cannot_be_written(program, place, tmp_path):
    arguments, folder = PROGRAMS[program]
    (tmp_path / "file").write_text("kept")
    (tmp_path / "folder").mkdir()
    named = "file/x" if place == "below a file" else ("file" if folder else "folder")
    found = run_cli([program, *arguments.split(), named], check=False, cwd=tmp_path)
    assert found.returncode == 1, found.stderr
    sentence = found.stderr.splitlines()[-1]
    assert named in sentence and sentence.endswith("."), found.stderr
    assert TRACEBACK not in found.stderr
    assert (tmp_path / "file").read_text() == "kept" and not [*(tmp_path / "folder").iterdir()]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_a_folder_of_states_that_cannot_be_made(tmp_path):
    (tmp_path / "file").touch()
    arguments, _ = PROGRAMS["specdec-cluster-vocab"]
    more = ["clusters.pt", "--states-dir", "file/x"]
    found = run_cli(["specdec-cluster-vocab", *arguments.split(), *more], check=False, cwd=tmp_path)
    assert found.stderr.splitlines()[-1].startswith("--states-dir file/x cannot be written (")
