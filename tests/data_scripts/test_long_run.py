"""The script that watches the memory of a long run."""

import json
import os

import long_run
import pytest
from process_memory import memory_of

from tests.support.command_lines import SCRIPTS, run_cli


@pytest.mark.slow
def test_a_text_that_repeats(tiny_verifier, corpus, tmp_path):
    output = tmp_path / "memory.json"
    args = ["python", SCRIPTS / "long_run.py", "--input", f"{corpus.raw_dir}/test.en"]
    args += ["--lines", 3000, "--every", 500, "--output", output, "--", corpus.data_dir]
    args += ["-s", "en", "-t", "es", "--path", tiny_verifier, "--task", "specdec_translation"]
    args += ["--decoding", "auto", "--beam", 1, "--max-len-b", 20, "--buffer-size", 64]
    done = run_cli([*args, "--batch-size", 64, "--cpu"])
    found = json.loads(output.read_text("utf-8"))
    assert found["all in order and the same"] is True and found["command"].startswith("long_run.py")
    assert "3,000 hypotheses, all in order and the same." in done.stdout
    lines = [row["lines"] for row in found["rows"]]
    assert lines == sorted(lines) and lines[0] >= 500
    assert all(0 < row["resident"] <= row["peak"] for row in found["rows"])

    done = run_cli([*args, "--lenpen", "many"], check=False)
    assert done.returncode == 1 and "fairseq-interactive has failed" in done.stderr


@pytest.mark.parametrize(
    ("lines", "right"),
    [
        ("H-0\t-1\ta\nH-1\t-1\tb b\nH-2\t-2\ta\n", True),
        ("H-0\t-1\ta\nH-1\t-1\tb\nH-2\t-2\tb\n", False),  # not as before
        ("H-0\t-1\ta\nH-2\t-2\ta\nH-1\t-1\tb\n", False),  # another order
        ("H-0\t-1\ta\nH-1\t-1\tb\n", False),  # too few
    ],
)
def test_hypotheses_that_are_right(lines, right, tmp_path):
    path, written = tmp_path / "out", ("S-0\tx\n" + lines.replace("b", "é")).encode()
    path.write_bytes(written[:23])
    output = long_run.Output(path)
    assert output.read() == 1  # the second one is not whole yet
    with path.open("ab") as file:
        file.write(written[23:])
    assert output.read() == len(output.hypotheses) == lines.count("H-")
    assert output.is_right(3, period=2) is right


def test_the_memory_of_a_process():
    mine = memory_of(os.getpid())
    assert 0 < mine.resident <= mine.peak
    assert memory_of(2**30) == (0, 0)


def test_a_table_shows_some_of_many_rows():
    rows = [{"lines": lines, "seconds": 1.0, "resident": 5, "peak": 10} for lines in (5, 10)]
    assert long_run.table(rows).endswith(" 1.000 |")
    many = [{**rows[0], "lines": lines} for lines in range(1, 21)]
    for count in (1, 2, 8, 9, 20):
        lines = long_run.table(many[:count]).splitlines()[2:]
        numbers = [int(line.split("|")[1]) for line in lines]
        assert len({*numbers}) == min(count, 8) and numbers[0] == 1 and numbers[-1] == count


def test_an_empty_text(tmp_path):
    (tmp_path / "text").write_text("")
    args = ["python", SCRIPTS / "long_run.py", "--input", tmp_path / "text", "--lines", 5]
    done = run_cli([*args, "--output", tmp_path / "x.json", "--", "data"], check=False)
    assert done.returncode == 1 and "--input needs a line" in done.stderr
    assert not (tmp_path / "x.json").exists()
