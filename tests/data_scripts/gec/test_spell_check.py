"""The plain spell checker: what it corrects, and what it leaves."""

from pathlib import Path

import pytest
from confusion import write_vocabulary
from spell_check import SpellChecker, one_edit_from

from tests.support.command_lines import SCRIPTS, run_cli

COUNTS = {"because": 9, "society": 5, "variety": 2, "house": 7, "horse": 3, "the": 90}


@pytest.mark.parametrize(
    "line, expected",
    [
        ("The sosiety , becuase", "The society , because"),
        ("Becuase the houses", "Because the house"),
        ("hoouse hoose", "house house"),
        ("Smith met Sosiety in sosciaty2", "Smith met Sosiety in sosciaty2"),
        ("teh xyzzyq http://hous", "teh xyzzyq http://hous"),
    ],
)
def test_lines(line: str, expected: str) -> None:
    assert SpellChecker(COUNTS).line(line) == expected


def test_one_edit() -> None:
    found = {*one_edit_from("ab")}
    assert {"a", "b", "ba", "cb", "ac", "cab", "acb", "abc"} <= found
    assert all(abs(len(word) - 2) <= 1 for word in found)


def test_a_line_for_every_line(tmp_path: Path) -> None:
    write_vocabulary(str(tmp_path / "words"), COUNTS)
    program = SCRIPTS / "gec" / "spell_check.py"
    done = run_cli(
        ["python", program, "--vocabulary", tmp_path / "words"], input="the hause\n\nHuose .\n"
    )
    assert done.stdout == "the house\n\nHouse .\n"
