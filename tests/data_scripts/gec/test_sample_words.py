"""Words drawn from a vocabulary: how often, and the same for the same seed."""

from collections import Counter
from pathlib import Path
from typing import List

import pytest
import sample_words
from confusion import write_vocabulary

from specdec_plugin.errors import PluginError


def drawn(folder: Path, *more: str) -> List[str]:
    output = folder / "words.en"
    sample_words.main([str(folder / "vocabulary"), "--output", str(output), *more])
    return output.read_text("utf-8").splitlines()


def test_frequent_words_come_less_often_than_in_text(tmp_path: Path) -> None:
    counts = {"because": 900, "house": 100, "rare": 1, "of": 5000, "don't": 70}
    write_vocabulary(str(tmp_path / "vocabulary"), counts)
    lines = drawn(tmp_path, "--lines", "800", "--width", "5")
    assert len(lines) == 800 and all(len(line.split()) == 5 for line in lines)
    found = Counter(word for line in lines for word in line.split())
    assert found.keys() == {"because", "house", "rare"}
    assert found["because"] / found["house"] == pytest.approx(3, rel=0.15)
    assert found["house"] / found["rare"] == pytest.approx(10, rel=0.3)
    assert drawn(tmp_path, "--lines", "3") == drawn(tmp_path, "--lines", "3")
    assert drawn(tmp_path, "--lines", "3") != drawn(tmp_path, "--lines", "3", "--seed", "2")


def test_refusals(tmp_path: Path) -> None:
    write_vocabulary(str(tmp_path / "vocabulary"), {"of": 3})
    with pytest.raises(PluginError, match="holds no word of 3 letters"):
        drawn(tmp_path)
    with pytest.raises(PluginError, match="at least 1"):
        drawn(tmp_path, "--lines", "0")
