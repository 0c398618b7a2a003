"""Clean text to training, development and test sentences."""

import doctest
import gzip
from pathlib import Path
from typing import Dict, List

import pytest
import split_text

from specdec_plugin.errors import PluginError

LINES = [f"The house number {number} is empty. Nobody lives in{number}!" for number in range(400)]


def split(folder: Path, *inputs: Path) -> Dict[str, List[str]]:
    """What the program writes, by split."""
    split_text.main([*map(str, inputs), "--output", str(folder)])
    return {
        name: (folder / f"{name}.en").read_text("utf-8").splitlines() for name in split_text.SPLITS
    }


def test_every_sentence_is_in_one_file_and_stays_there(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "b.gz"
    plain.write_text("\n".join(LINES[:300]) + "\n\n", "utf-8")
    packed.write_bytes(gzip.compress("\n".join(LINES[200:]).encode()))
    once, both = split(tmp_path / "one", plain), split(tmp_path / "two", plain, packed)
    found = [sentence for sentences in both.values() for sentence in sentences]
    wanted = {part for line in LINES for part in split_text.sentences(line)}
    assert len(found) == len({*found}) == len(wanted) == 800 and {*found} == wanted
    for name, sentences in once.items():
        assert sentences == both[name][: len(sentences)]
    assert len(both["train"]) > 0.95 * len(found)


def test_quotes_become_straight_and_sentences_end() -> None:
    assert split_text.sentences("“It’s late” , he said. Go on") == [
        '"It\'s late" , he said.',
        "Go on",
    ]
    assert split_text.sentences("J. R. Smith came.") == ["J. R. Smith came."]
    assert doctest.testmod(split_text).failed == 0


def test_too_little_text(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Only this.\n", "utf-8")
    with pytest.raises(PluginError, match="No sentence is left for dev"):
        split(tmp_path / "out", tmp_path / "text")
    assert not (tmp_path / "out" / "train.en").exists()
