"""Outputs and devices that are not there: programs say so in a sentence, and load nothing first."""

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


@pytest.mark.parametrize("program", ["specdec-ddgviz", "specdec-check", "specdec-bench"])
@pytest.mark.parametrize("device", ["nowhere", "cuda:77"])
def test_a_device_that_is_not_there(program, device, tmp_path):
    arguments, _ = PROGRAMS[program]
    command = [program, *arguments.split(), "out", "--device", device]
    found = run_cli(command, check=False, cwd=tmp_path)
    assert found.returncode == 1 and TRACEBACK not in found.stderr
    assert f"device {device}" in found.stderr.splitlines()[-1]
    assert [*tmp_path.iterdir()] == []


def test_a_server_without_its_device(packed):
    found = run_cli(["specdec-serve", packed, "--port", 0, "--device", "cuda:77"], check=False)
    assert found.returncode == 1 and TRACEBACK not in found.stderr
    assert found.stderr.splitlines()[-1].startswith("The device cuda:77 cannot be used: PyTorch ")


def test_messages_name_flags(corpus, tiny_verifier):
    args = [corpus.data_dir, *DATA.split()[1:], "--path", tiny_verifier, "--min-len", 300]
    found = run_cli(["specdec-generate", *args, "--cpu", "--decoding", "greedy"], check=False)
    assert "--min-len 300 is more than the length limit 200." in found.stderr
    found = run_cli(["specdec-check", "none", "--path", tiny_verifier], check=False)
    assert "There is no data folder none." in found.stderr
