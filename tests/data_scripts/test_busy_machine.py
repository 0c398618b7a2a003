"""The script that decodes beside other programs."""

import json

import pytest

from tests.support.command_lines import SCRIPTS, run_cli


@pytest.mark.slow
def test_two_ways_beside_loops_and_a_second_program(packed, corpus, tmp_path):
    output = tmp_path / "busy.json"
    done = run_cli(
        ["python", SCRIPTS / "busy_machine.py", packed, "--input", f"{corpus.raw_dir}/test.en",
         "--methods", "greedy", "--batch-sizes", 1, 4, "--repeats", 2, "--output", output],
    )  # fmt: skip
    found = json.loads(output.read_text("utf-8"))
    assert [row["batch size"] for row in found["rows"]] == [1, 4]
    for row in found["rows"]:
        times = [row[name] for name in ("alone", "loops", "twin")]
        assert all(len(each) == 2 and min(each) > 0 for each in times)
    assert done.stdout.count("\n| `greedy`") == 2


def test_a_folder_that_is_none(corpus, tmp_path):
    args = ["python", SCRIPTS / "busy_machine.py", tmp_path, "--output", tmp_path / "busy.json"]
    done = run_cli([*args, "--input", f"{corpus.raw_dir}/test.en"], check=False)
    assert done.returncode == 1 and "A program that decodes has failed" in done.stderr
    assert not (tmp_path / "busy.json").exists()
