"""Edits by kind: what they are called, and how many there are."""

import doctest
from pathlib import Path
from typing import Dict

import count_edits
import pytest
from confusion import write_vocabulary

from specdec_plugin.errors import PluginError

KNOWN = dict.fromkeys(
    "the a cat cats dog goes go went happy happily society on in house hose sing sings".split(),
    3,
)


@pytest.mark.parametrize(
    "old, new, kind",
    [
        ("sosiety", "society", "misspelling"),
        ("a", "the", "article"),
        ("was", "were", "agreement"),
        ("cat", "cats", "number"),
        ("go", "went", "verb"),
        ("on", "in", "preposition"),
        ("he", "it", "small word"),
        ("happy", "happily", "derivation"),
        ("hose", "house", "real word alike"),
        ("dog", "society", "other word"),
        (",", ";", "punctuation"),
        (",", "and", "mixed"),
        ("", ",", "M: comma"),
        ("the", "", "U: article"),
        ("", "happy", "M: other word"),
        ("i", "I", "case"),
        ("an other", "another", "spacing"),
        ("quite a", "a quite", "order"),
        ("go", "is happy", "several words"),
    ],
)
def test_kinds(old: str, new: str, kind: str) -> None:
    assert count_edits.kind(old.split(), new.split(), KNOWN) == kind


def test_counts_of_chosen_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files: Dict[str, str] = {
        "src": "a cat sing on\nthe happy dog\nhe was hapy\n",
        "one": "a cat sings in\nthe happy dog\nhe was happy\n",
        "two": "the cat sings on\nthe happy dogs\nhe was happy\n",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, "utf-8")
    write_vocabulary(str(tmp_path / "words"), KNOWN)
    paths = [str(tmp_path / name) for name in files]
    count_edits.main([*paths, "--vocabulary", str(tmp_path / "words"), "--lines", "even"])
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "14 words, 42.86 edits in 100, 0.0% unchanged"
    shares = dict(line.rsplit(maxsplit=1) for line in printed[1:])
    assert shares == {
        "number": "14.29",
        "misspelling": "14.29",
        "preposition": "7.14",
        "article": "7.14",
    }
    (tmp_path / "two").write_text("a cat\n", "utf-8")
    with pytest.raises(PluginError, match="do not belong together line by line"):
        count_edits.main([*paths, "--vocabulary", str(tmp_path / "words")])
    assert doctest.testmod(count_edits).failed == 0
