"""Tokenising: punctuation and clitics apart, markup whole, and a line for every line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenise import tokens

from tests.support.command_lines import SCRIPTS, run_cli


@pytest.mark.parametrize(
    "line, expected",
    [
        ("It doesn't work, I'm afraid.", "It does n't work , I 'm afraid ."),
        ("WE'VE said you'd go; they'll, too!", "WE 'VE said you 'd go ; they 'll , too !"),
        ("Mr. No met Dr. Gray (e.g., in U.S.).", "Mr. No met Dr. Gray ( e.g. , in U.S. ) ."),
        ("Files, folders, etc.", "Files , folders , etc."),
        ('He said: "wait..."', 'He said : " wait ... "'),
        ("Use :meth:`~io.Raw.read`, or ``read()``.", "Use :meth:`~io.Raw.read` , or ``read()`` ."),
        ("(see *name*) since 3.11?", "( see *name* ) since 3.11 ?"),
        ("“Why [so]” …", "“ Why [ so ] ” …"),
        ("«Так», — «ні».", "« Так » , — « ні » ."),
        ("  'tis   well-known ", "'tis well-known"),
        ("", ""),
    ],
)  # fmt: skip
def test_tokens(line: str, expected: str) -> None:
    assert " ".join(tokens(line)) == expected


@pytest.mark.parametrize("line", ["He ca n't .", "e.g. :ref:`here` , etc. ...", "It 's ( not ) so"])
def test_tokenised_text_stays(line: str) -> None:
    assert " ".join(tokens(line)) == line


@given(st.text(st.sampled_from("aN't'sdm.,(\"”`: \t\u2028é") | st.characters(), max_size=30))
def test_no_character_is_lost(line: str) -> None:
    found = list(tokens(line))
    assert "".join(found) == "".join(line.split())
    assert all(token and not token.isspace() for token in found)


def test_a_line_for_every_line() -> None:
    lines = ["", "One.", "two\u2028three\x0bfour", "\t", "five\r", "", "six"]
    done = run_cli(["python", SCRIPTS / "gec" / "tokenise.py"], input="\n".join(lines))
    assert done.stdout == "\nOne .\ntwo three four\n\nfive\n\nsix\n"


def test_what_is_no_text_gets_a_sentence() -> None:
    program = ["python", SCRIPTS / "gec" / "tokenise.py"]
    done = run_cli(program, input="one\n\udcff\n", errors="surrogateescape", check=False)
    assert done.returncode == 1 and done.stdout == "one\n"
    assert "Line 2 of standard input is not UTF-8" in done.stderr
    assert "Traceback" not in done.stderr
