"""M2 to parallel text: whose corrections, and a line for every line."""

import gzip
import io
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from m2_to_parallel import main

from specdec_plugin.errors import PluginError

FILE = """\
S He go home .
A 3 3|||M:ADV|||today|||REQUIRED|||-NONE-|||0
A 1 2|||R:VERB|||goes|||REQUIRED|||-NONE-|||0
A 1 2|||R:VERB|||went|||REQUIRED|||-NONE-|||2

S All is well .

S it rain
A 0 2|||R|||It rains|||REQUIRED|||-NONE-|||2
A 1 2|||R|||raining|||REQUIRED|||-NONE-|||2
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||0
"""
SOURCES = ["He go home .", "All is well .", "it rain"]
FIRST = ["He goes home today .", "All is well .", "it rain"]
THIRD = ["He went home .", "All is well .", "It rains"]


@pytest.fixture()
def m2(tmp_path: Path) -> Path:
    path = tmp_path / "some.m2"
    path.write_text(FILE, "utf-8")
    return path


def read(path: Path) -> List[str]:
    return path.read_text("utf-8").split("\n")[:-1]


def converted(m2: Path, *more: Any) -> Tuple[List[str], List[str]]:
    main([str(arg) for arg in (m2, "--output", m2.parent / "out", *more)])
    return read(m2.parent / "out.err"), read(m2.parent / "out.cor")


def test_one_annotator(m2: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert converted(m2) == (SOURCES, FIRST)
    assert converted(m2, "--annotator", 2) == (SOURCES, THIRD)
    assert "1 overlapping edits left out" in capsys.readouterr().out
    assert converted(m2, "--annotator", 2, "--drop-unchanged") == (SOURCES[::2], THIRD[::2])


def test_all_annotators(m2: Path) -> None:
    twice = [line for line in SOURCES for _ in range(2)]
    both = [line for pair in zip(FIRST, THIRD, strict=True) for line in pair]
    assert converted(m2, "--annotator", "all") == (twice, both)
    # Nobody is named below the second sentence: one line.
    del twice[2], both[2]
    assert converted(m2, "--annotator", "named") == (twice, both)
    wrong, right = converted(m2, "--annotator", "all", "--drop-unchanged")
    assert right == ["He goes home today .", "He went home .", "It rains"]
    assert wrong == ["He go home .", "He go home .", "it rain"]


def test_packed_file_and_other_suffixes(m2: Path) -> None:
    packed = m2.parent / "some.m2.gz"
    packed.write_bytes(gzip.compress(m2.read_bytes()))
    assert converted(packed) == (SOURCES, FIRST)
    converted(packed, "--suffixes", "src", "trg")
    assert (read(m2.parent / "out.src"), read(m2.parent / "out.trg")) == (SOURCES, FIRST)


def test_the_file_is_read_once(
    m2: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Standard input cannot be read twice, and an edit beyond its sentence is told of once."""
    text = f"{FILE}A 9 9|||M|||today|||REQUIRED|||-NONE-|||0\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode("utf-8"))))
    main(["-", "--output", str(m2.parent / "out")])
    assert (read(m2.parent / "out.err"), read(m2.parent / "out.cor")) == (SOURCES, FIRST)
    assert len(caplog.records) == 1


def test_lines_stay_lines(tmp_path: Path) -> None:
    path = tmp_path / "odd.m2"
    path.write_text("S\n\nS a\x00b\u2028c\nA 0 1|||R|||d\x85e|||REQUIRED|||-NONE-|||0\n", "utf-8")
    assert converted(path) == (["", "a b c"], ["", "d e c"])


@pytest.mark.parametrize(
    "text, arguments, told",
    [
        (FILE, ["--annotator", "1"], "names no annotator 1. Choose from 0, 2"),
        (FILE, ["--annotator", "anyone"], "is no annotator"),
        ("S a\nA 0 1|||R\n", [], "Line 2 of"),
        ("", [], "No pair comes of"),
        ("S a\n", ["--drop-unchanged"], "No pair comes of"),
        (FILE, ["--suffixes", "x", "x"], "three files"),
    ],
)
def test_refuses_with_a_sentence(
    tmp_path: Path, text: str, arguments: List[str], told: str
) -> None:
    (tmp_path / "some.m2").write_text(text, "utf-8")
    with pytest.raises(PluginError) as caught:
        converted(tmp_path / "some.m2", *arguments)
    assert told in str(caught.value)
    assert not (tmp_path / "out.err").exists()
