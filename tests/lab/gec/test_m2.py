"""M2: what annotators wrote is what is read, and mistakes in the file are named."""

import doctest
import gzip
from pathlib import Path
from typing import Any, List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.gec import m2
from specdec_plugin.lab.gec.m2 import Edit, apply_edits, read_m2, read_m2_file, without_overlaps

FILE = """\
S He go to school yesterday .
A 4 5|||R:NOUN||||||REQUIRED|||-NONE-|||0
A 1 2|||R:VERB:TENSE|||went||was going|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||2

S Fine .

I a note
S She like\u00a0it
A 1 2|||R:VERB:SVA|||likes|||REQUIRED|||-NONE-|||1
A 3 3|||M:PUNCT|||.|||REQUIRED|||-NONE-|||1
A 0 1|||U:PRON|||-NONE-|||REQUIRED|||-NONE-|||1
"""


def sentences(text: str) -> List[Any]:
    return list(read_m2(text.split("\n"), "some.m2"))


def test_reads_sentences_edits_and_annotators() -> None:
    first, second, third = sentences(FILE)
    assert first[0] == "He go to school yesterday .".split()
    assert first[1] == {
        0: [
            Edit(4, 5, "", "R:NOUN", 0),
            Edit(1, 2, "went", "R:VERB:TENSE", 0, ("was going",)),
        ],
        2: [],
    }
    assert second == (["Fine", "."], {})
    assert list(third[1]) == [1]
    assert apply_edits(first[0], first[1][0]) == "He went to school .".split()
    assert apply_edits(third[0], third[1][1]) == "likes it .".split()


@pytest.mark.parametrize("ending", ["", "\n", "\r\n"])
def test_files_plain_or_packed(tmp_path: Path, ending: str) -> None:
    content = FILE.replace("\n", ending).encode("utf-8") if ending else FILE.encode("utf-8")[:-1]
    (tmp_path / "plain.m2").write_bytes(content)
    (tmp_path / "packed.m2.gz").write_bytes(gzip.compress(content))
    for name in ("plain.m2", "packed.m2.gz"):
        assert list(read_m2_file(str(tmp_path / name))) == sentences(FILE)


def test_reads_a_sentence_at_a_time() -> None:
    def lines() -> Any:
        yield from ["S a", "S b"]
        raise AssertionError("read ahead")

    assert next(read_m2(lines(), "endless")) == (["a"], {})


def test_empty_sentences_and_files() -> None:
    assert sentences("") == []
    assert sentences("S\n\nS \nA 0 0|||M|||word|||REQUIRED|||-NONE-|||0") == [
        ([], {}),
        ([], {0: [Edit(0, 0, "word", "M", 0)]}),
    ]


@pytest.mark.parametrize(
    "text, told",
    [
        ("A 0 1|||R|||a|||REQUIRED|||-NONE-|||0", "Line 1 of some.m2 is an edit without"),
        ("S a b\n\nB c", "Line 3 of some.m2 begins with neither"),
        ("S a\nA 0 1|||R|||b", "Line 2 of some.m2 is not an edit"),
        ("S a\nA 0|||R|||b|||REQUIRED|||-NONE-|||0", "Line 2 of some.m2 is not an edit"),
        ("S a\nA 0 1|||R|||b|||REQUIRED|||-NONE-|||x", "Line 2 of some.m2 is not an edit"),
        ("S a\nA 1 0|||R|||b|||REQUIRED|||-NONE-|||0", "edits tokens 1 to 0"),
    ],
)
def test_malformed_lines_are_named(text: str, told: str) -> None:
    with pytest.raises(PluginError) as caught:
        sentences(text)
    assert told in str(caught.value)


def test_edits_beyond_the_end_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    text = "S a b\nA 1 3|||R|||c|||REQUIRED|||-NONE-|||0\nA 2 2|||M|||.|||REQUIRED|||-NONE-|||1"
    assert sentences(text) == [(["a", "b"], {0: [], 1: [Edit(2, 2, ".", "M", 1)]})]
    assert "line 2 of some.m2 edits tokens 1 to 3 of a sentence of 2" in caplog.text


def test_unreadable_files(tmp_path: Path) -> None:
    (tmp_path / "latin.m2").write_bytes(b"S caf\xe9\n")
    (tmp_path / "torn.m2.gz").write_bytes(gzip.compress(FILE.encode())[:-9])
    (tmp_path / "plain.m2.gz").write_bytes(FILE.encode())
    for name, told in (
        ("none.m2", "not found"),
        ("", "folder"),
        ("latin.m2", "UTF-8"),
        ("torn.m2.gz", "truncated"),
        ("plain.m2.gz", "truncated"),
    ):
        with pytest.raises(PluginError, match=told):
            list(read_m2_file(str(tmp_path / name)))


WORDS = st.sampled_from("a b c d".split())


@st.composite
def edited(draw: Any) -> Tuple[List[str], List[Edit], List[str]]:
    """Source, edits, and the target as it was built beside them, from left to right."""
    source: List[str] = []
    target: List[str] = []
    edits: List[Edit] = []
    for _ in range(draw(st.integers(0, 5))):
        kept = draw(st.lists(WORDS, min_size=1, max_size=3))
        old, new = draw(st.lists(WORDS, max_size=2)), draw(st.lists(WORDS, max_size=2))
        source += kept
        edits.append(Edit(len(source), len(source) + len(old), " ".join(new), "R", 0))
        source += old
        target += [*kept, *new]
    return source, draw(st.permutations(edits)), target


@given(edited())
def test_applying_edits_in_any_order(case: Tuple[List[str], List[Edit], List[str]]) -> None:
    source, edits, target = case
    assert apply_edits(source, edits) == target
    lines = [f"S {' '.join(source)}"] + [
        f"A {e.start} {e.end}|||{e.type}|||{e.replacement}|||REQUIRED|||-NONE-|||0" for e in edits
    ]
    (tokens, annotations), *rest = read_m2(lines, "written")
    assert tokens == source and annotations.get(0, []) == edits and not rest


def test_insertions_at_one_place_keep_their_order() -> None:
    edits = [Edit(1, 1, "x", "M", 0), Edit(1, 2, "z", "R", 0), Edit(1, 1, "y", "M", 0)]
    assert apply_edits(["a", "b"], edits) == ["a", "x", "y", "z"]
    assert len(without_overlaps([*edits, Edit(0, 2, "", "U", 0)])) == 1


def test_examples_in_the_documentation() -> None:
    assert doctest.testmod(m2).failed == 0
