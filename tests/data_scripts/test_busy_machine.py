"""The script that decodes beside other programs."""

import json

import pytest

from tests.support.command_lines import SCRIPTS, run_cli


@pytest.mark.slow
def test_two_ways_beside_other_programs(packed, corpus, tmp_path):
    output = tmp_path / "busy.json"
    done = run_cli(
        ["python", SCRIPTS / "busy_machine.py", packed, "--input", f"{corpus.raw_dir}/test.en",
         "--methods", "greedy", "--batch-sizes", 1, 4, "--repeats", 2, "--output", output,
         "--beside", "sleep 600", "--warming", 0.1],
    )  # fmt: skip
    found = json.loads(output.read_text("utf-8"))
    assert [row["batch size"] for row in found["rows"]] == [1, 4]
    for row in found["rows"]:
        for name, decoders in {"alone": 2, "loops": 2, "command": 2, "twin": 1}.items():
            assert [len(each) for each in row[name]] == [decoders] * 2, name
            assert min(map(min, row[name])) > 0
    assert done.stdout.count("\n| `greedy`") == 2 and "beside the command" in done.stdout


@pytest.mark.slow
def test_a_command_that_ends_too_early(packed, corpus, tmp_path):
    args = ["python", SCRIPTS / "busy_machine.py", packed, "--output", tmp_path / "busy.json"]
    args += ["--methods", "greedy", "--batch-sizes", 1, "--repeats", 1]
    args += ["--input", f"{corpus.raw_dir}/test.en", "--beside", "true", "--warming", 1]
    done = run_cli(args, check=False)
    assert done.returncode == 1 and "Give one that runs longer" in done.stderr
    assert not (tmp_path / "busy.json").exists()


def test_a_folder_that_is_none(corpus, tmp_path):
    args = ["python", SCRIPTS / "busy_machine.py", tmp_path, "--output", tmp_path / "busy.json"]
    done = run_cli([*args, "--input", f"{corpus.raw_dir}/test.en"], check=False)
    assert done.returncode == 1 and "A program that decodes has failed" in done.stderr
    assert not (tmp_path / "busy.json").exists()
