"""Text without case and punctuation: what goes, what stays, and a line for every line."""

import subprocess
import sys
from typing import Any

import pytest
from strip_case import get_parser, stripper

from tests.support.command_lines import ENVIRONMENT, SCRIPTS, run_cli

PROGRAM = ("python", SCRIPTS / "gec" / "strip_case.py")
LINE = "“ Well ” , Mr. O'Neil 's HTTP/2 server ( in ``Main`` ) does n't STOP - É !"


def stripped(line: str, *options: str) -> str:
    return stripper(get_parser().parse_args(options))(line)


@pytest.mark.parametrize(
    "options, expected",
    [
        ([], "well mr. o'neil 's HTTP/2 server in ``Main`` does n't stop é"),
        (["--markup"], "well mr. o'neil 's http/2 server in ``main`` does n't stop é"),
        (["--keep-case"], "Well Mr. O'Neil 's HTTP/2 server in ``Main`` does n't STOP É"),
        (["--keep-punctuation"], LINE.lower().replace("http", "HTTP").replace("main", "Main")),
        (["--punctuation", "!"], "“ well ” , mr. o'neil 's HTTP/2 server ( in ``Main`` ) "
         "does n't stop - é"),
    ],
)  # fmt: skip
def test_options(options: Any, expected: str) -> None:
    assert stripped(LINE, *options) == expected


def test_lines_of_punctuation_become_empty() -> None:
    assert stripped("... ?! -- « »") == stripped("") == ""
    assert stripped("2.5 , 3 % #1") == "2.5 3 % #1"


def test_a_line_for_every_line() -> None:
    done = run_cli([*PROGRAM], input="A b .\n\n. . .\nC\u2028D\x0bE\r\nF")
    assert done.stdout == "a b\n\n\nc d e\nf\n"


@pytest.mark.parametrize(
    "rest, status, told",
    [
        ("| head -n 1", "141", ""),
        (">/dev/full", "1", "The output cannot be written (No space left on device), and is not"),
    ],
)
def test_an_output_that_nobody_takes(rest: str, status: str, told: str) -> None:
    """All programs for lines write them alike."""
    script = f'yes "A b ." | head -n 100000 | "$@" {rest}; echo "${{PIPESTATUS[2]}}" >&2'
    done = subprocess.run(
        ["bash", "-c", script, "bash", sys.executable, PROGRAM[1]],
        env=ENVIRONMENT,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )
    assert done.stderr.endswith(f"{status}\n") and told in done.stderr
    assert "Traceback" not in done.stderr


def test_nothing_to_do() -> None:
    done = run_cli([*PROGRAM, "--keep-case", "--keep-punctuation"], input="", check=False)
    assert done.returncode == 2 and "nothing to do" in done.stderr
