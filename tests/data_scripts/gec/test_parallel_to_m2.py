"""Parallel text to M2: its edits make the correction of the source again."""

import itertools
from pathlib import Path
from typing import List, Tuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from m2_to_parallel import main as m2_to_parallel
from parallel_to_m2 import can_be_written, edit_line, find_edits, main

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.gec.m2 import apply_edits, read_m2, read_m2_file
from specdec_plugin.lab.gec.maxmatch import count_sentence, levenshtein

SENTENCE = st.lists(st.sampled_from("a b c A . |".split()), max_size=8)


@given(SENTENCE, SENTENCE)
def test_edits_make_the_correction(wrong: List[str], right: List[str]) -> None:
    edits = find_edits(wrong, right)
    assume(all(map(can_be_written, edits)))
    lines = [f"S {' '.join(wrong)}", *map(edit_line, edits)]
    ((tokens, annotations),) = read_m2(lines, "test")
    assert tokens == wrong
    assert annotations.get(0, []) == edits
    assert apply_edits(tokens, annotations.get(0, [])) == right


@given(SENTENCE, SENTENCE)
def test_edits_are_few_and_apart(wrong: List[str], right: List[str]) -> None:
    edits = find_edits(wrong, right)
    steps = sum(max(edit.end - edit.start, len(edit.replacement.split())) for edit in edits)
    assert steps == levenshtein(wrong, right, substitution=1)[-1][-1]
    assert all(edit.end < after.start for edit, after in itertools.pairwise(edits))
    assert not edits or wrong != right


@given(SENTENCE, SENTENCE)
def test_the_scorer_finds_them(wrong: List[str], right: List[str]) -> None:
    edits = find_edits(wrong, right)
    ((matched, proposed, gold),) = count_sentence(wrong, right, {0: edits})
    assert matched == proposed == gold == len(edits)


@pytest.mark.parametrize(
    "wrong, right, expected",
    [
        ("he go home", "He goes home .", [(0, 2, "He goes", "R"), (3, 3, ".", "M")]),
        ("a big big house", "a big house", [(1, 2, "", "U")]),
        ("", "new", [(0, 0, "new", "M")]),
        ("all well", "all well", []),
    ],
)
def test_examples(wrong: str, right: str, expected: List[Tuple[int, int, str, str]]) -> None:
    assert [edit[:4] for edit in find_edits(wrong.split(), right.split())] == expected


def written(folder: Path, wrong: str, right: str) -> Path:
    (folder / "some.err").write_text(wrong, "utf-8")
    (folder / "some.cor").write_text(right, "utf-8")
    output = folder / "some.m2"
    main([str(folder / "some"), "--output", str(output)])
    return output


def test_files_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, right = "it rain .\n\nall\u2028well\n", "It rains .\n\nall well\n"
    m2 = written(tmp_path, wrong, right)
    assert "3 sentences, 1 edits; 0 " in capsys.readouterr().out
    assert [annotations[0] != [] for _, annotations in read_m2_file(str(m2))] == [
        True,
        False,
        False,
    ]
    m2_to_parallel([str(m2), "--output", str(tmp_path / "back")])
    assert (tmp_path / "back.err").read_text("utf-8") == "it rain .\n\nall well\n"
    assert (tmp_path / "back.cor").read_text("utf-8") == right


def test_what_m2_cannot_express(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    m2 = written(tmp_path, "a or b\nsay it\nc or d", "a || b !\nsay -NONE-\nc | d\n")
    assert "1 edits; 3 that M2 cannot express" in capsys.readouterr().out
    found = [apply_edits(*each) for each in ((t, a[0]) for t, a in read_m2_file(str(m2)))]
    assert [" ".join(tokens) for tokens in found] == ["a or b !", "say it", "c or d"]


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="numbers of lines"):
        written(tmp_path, "one\ntwo\n", "one\n")
    assert not (tmp_path / "some.m2").exists()
    with pytest.raises(PluginError, match="three files"):
        main([str(tmp_path / "some"), "--output", str(tmp_path / "some.err")])
