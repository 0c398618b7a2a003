"""data_scripts/join_directions.py: every line of every direction, marked, once."""

import gzip
from pathlib import Path

import join_directions
import pytest

from specdec_plugin.errors import PluginError

LINES = {
    "es": [("one\ttwo", "uno dos"), ("", "nada"), ("three", "tres")],
    "ja": [("one\ttwo", "一 二")],
}


@pytest.fixture()
def corpus(tmp_path: Path) -> Path:
    for language, pairs in LINES.items():
        folder = tmp_path / "corpus" / f"en-{language}"
        folder.mkdir(parents=True)
        for split in join_directions.SPLITS:
            for side, name in enumerate(("en", language)):
                text = "".join(pair[side] + "\n" for pair in pairs)
                with gzip.open(folder / f"{split}.{name}.gz", "wt", encoding="utf-8") as out:
                    out.write(text)
    return tmp_path / "corpus"


def run(corpus: Path, output: Path, *targets: str) -> None:
    join_directions.main(
        [str(corpus), "--source", "en", "--targets", *targets, "--output", str(output)]
    )


def test_directions_behind_each_other(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out", "es", "ja")
    for split in join_directions.SPLITS:
        texts = {
            (name, side): (tmp_path / "out" / name / f"{split}.{side}").read_text("utf-8")
            for name in ("all", "es", "ja")
            for side in ("src", "tgt")
        }
        assert texts["es", "src"] == "__es__ one two\n__es__\n__es__ three\n"
        assert texts["es", "tgt"] == "uno dos\nnada\ntres\n"
        assert texts["ja", "src"] == "__ja__ one two\n" and texts["ja", "tgt"] == "一 二\n"
        for side in ("src", "tgt"):
            assert texts["all", side] == texts["es", side] + texts["ja", side]


def test_sentences_of_others(corpus: Path, tmp_path: Path) -> None:
    run(corpus, tmp_path / "out", "es", "ja")
    assert (tmp_path / "out" / "es" / "others.src").read_text("utf-8") == ""
    assert (tmp_path / "out" / "ja" / "others.src").read_text("utf-8") == "__ja__ three\n"


def test_bad_input(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="names es twice"):
        run(corpus, tmp_path / "out", "es", "ja", "es")
    with pytest.raises(PluginError, match=r"en-fr.train\.en"):
        run(corpus, tmp_path / "out", "fr")
    (corpus / "en-es" / "dev.es").write_text("uno\n", "utf-8")
    with pytest.raises(PluginError, match=r"has 3 lines and .* has 1"):
        run(corpus, tmp_path / "out", "es")
