"""data_scripts/collect_outputs.py: BLEU, differing lines and seconds of outputs."""

import json
from pathlib import Path
from typing import Any, Dict, List

import collect_outputs
import pytest

from specdec_plugin.errors import PluginError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A reference, and outputs of which the second differs in a line."""
    lines = ["a b c d e", "f g h i j"]
    for name, text in (("ref", lines), ("one.hyp", lines), ("two.hyp", [lines[0], "f g h i k"])):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text), "utf-8")
    log = "Translated 2 sentences (1,012 tokens) in 1.5s (1.3 sentences/s, 674.7 tokens/s)\n"
    (tmp_path / "two.log").write_text(log, "utf-8")
    return tmp_path


def collected(folder: Path, *outputs: str) -> List[Dict[str, Any]]:
    path = folder / "out.json"
    collect_outputs.main([str(path), "--command", "run.sh", *outputs])
    return list(json.loads(path.read_text("utf-8"))["rows"])


def test_rows(folder: Path) -> None:
    ref, one = f"{folder}/ref", f"{folder}/one"
    first = f"setting=plain;k=2|{one}|{ref}|13a"
    second = f"setting=fast|{folder}/two|{ref}|char|{one}.hyp"
    plain, fast = collected(folder, first, second)
    assert plain["setting"] == "plain" and plain["k"] == 2 and plain["bleu"] == pytest.approx(100)
    assert "differing" not in plain and "seconds" not in plain and plain["sentences"] == 2
    assert fast["differing"] == "1 of 2" and fast["seconds"] == 1.5
    assert 0 < fast["bleu"] < 100 and "tok:char" in fast["bleu signature"]


def test_refusals(folder: Path) -> None:
    ref = f"{folder}/ref"
    with pytest.raises(PluginError, match="is not LABELS"):
        collected(folder, f"a=1|{folder}/one|{ref}")
    with pytest.raises(PluginError, match=r"no tokenizer 14b\. Give one of .*13a"):
        collected(folder, f"a=1|{folder}/one|{ref}|14b")
    with pytest.raises(PluginError, match="'a' is not NAME=VALUE"):
        collected(folder, f"a|{folder}/one|{ref}|13a")
    (folder / "short").write_text("a\n", "utf-8")
    with pytest.raises(PluginError, match="they do not belong together"):
        collected(folder, f"a=1|{folder}/one|{folder}/short|13a")
    with pytest.raises(PluginError, match="they do not belong together"):
        collected(folder, f"a=1|{folder}/one|{ref}|13a|{folder}/short")
