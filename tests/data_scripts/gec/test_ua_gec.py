"""UA-GEC in both forms: parts by document, and several annotators of one sentence."""

import gzip
from pathlib import Path
from typing import Dict, List

import pytest
import ua_gec

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.gec.m2 import apply_edits, read_m2_file


def write(path: Path, lines: List[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    text = "".join(line + "\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    """Two to train on, one to validate on, one to measure on, which two annotators corrected."""
    folder = tmp_path / "published"
    texts: Dict[str, List[str]] = {
        "0001": ["Він читає книга .", "Добре ."],
        "0010": ["Добре ."],
        "0023": ["Вона пише ."],
        "0007": ["Я тут - він там .", "Так .", "Було добре"],
    }
    for name, lines in texts.items():
        write(folder / ua_gec.SOURCES / f"{name}.src.txt", lines)
        right = [line.replace("книга", "книгу").replace(" - ", " — ") for line in lines]
        write(folder / ua_gec.TARGETS / f"{name}.a1.txt", right)
    second = ["Я тут , він там .", "Так .", "Було добре ."]
    write(folder / ua_gec.TARGETS / "0007.a2.txt", second)
    return folder


def read(path: Path) -> List[str]:
    return path.read_text("utf-8").splitlines()


def test_parts_are_of_different_documents(documents: Path, tmp_path: Path, capsys) -> None:
    output = tmp_path / "real"
    ua_gec.main([str(documents), "--output", str(output)])
    assert "train 3" in capsys.readouterr().out
    assert read(output / "train.err") == ["Він читає книга .", "Добре .", "Добре ."]
    assert read(output / "edited.cor") == ["Він читає книгу ."]
    assert read(output / "valid.cor") == ["Вона пише ."]
    assert read(output / "dev.err") == ["Я тут - він там .", "Так .", "Було добре"]


def test_each_annotator_is_in_the_m2_file(documents: Path, tmp_path: Path) -> None:
    output = tmp_path / "real"
    ua_gec.main([str(documents), "--output", str(output)])
    found = [
        [" ".join(apply_edits(tokens, edits)) for edits in annotations.values()]
        for tokens, annotations in read_m2_file(str(output / "dev.m2"))
    ]
    assert found == [
        ["Я тут — він там .", "Я тут , він там ."],
        ["Так ."],
        ["Було добре", "Було добре ."],
    ]


def test_files_of_lines(tmp_path: Path) -> None:
    lines = [f"Слово {number} ." for number in range(41)]
    for part, of_part in (("train", lines), ("dev", lines[:1] * 2)):
        write(tmp_path / f"{part}.src.gz", of_part)
        write(tmp_path / f"{part}.tgt", [line.replace("Слово 0", "Слова 0") for line in of_part])
    ua_gec.main([str(tmp_path), "--output", str(tmp_path / "out")])
    assert read(tmp_path / "out" / "valid.err") == lines[39:]
    assert read(tmp_path / "out" / "train.err") == lines[:39]
    assert read(tmp_path / "out" / "dev.cor") == ["Слова 0 ."]


def test_refusals(documents: Path, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"not found: .*train\.src"):
        ua_gec.main([str(tmp_path), "--output", str(tmp_path)])
    write(documents / ua_gec.TARGETS / "0007.a2.txt", ["Один ."])
    with pytest.raises(PluginError, match=r"has 3 lines and .* has 1"):
        ua_gec.main([str(documents), "--output", str(tmp_path)])
    (documents / ua_gec.TARGETS / "0007.a2.txt").unlink()
    (documents / ua_gec.TARGETS / "0007.a1.txt").unlink()
    with pytest.raises(PluginError, match="no sentence for dev"):
        ua_gec.main([str(documents), "--output", str(tmp_path)])
    write(documents / ua_gec.TARGETS / "notes.txt", ["Один ."])
    with pytest.raises(PluginError, match="no number of a document"):
        ua_gec.main([str(documents), "--output", str(tmp_path)])
