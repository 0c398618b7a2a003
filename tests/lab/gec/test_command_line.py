"""``specdec-gec-score`` from files to printed scores, and what it refuses."""

import gzip
import json
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.gec.__main__ import main
from tests.support.command_lines import run_cli

SOURCE = ["my sister live at city .", "these house .", "big cats is a fast runner .", ""]
HYPOTHESIS = ["our sister live in the city .", "these house .", "big cats are fast runner .", ""]
REFERENCES = [
    ["my sister lives in the city .", "these houses .", "big cats are fast runners .", ""],
    ["our sister lives in a city .", "this house .", "a big cat is a fast runner .", ""],
]
M2 = """\
S my sister live at city .
A 3 4|||Prep|||in|||REQUIRED|||-NONE-|||0
A 4 4|||ArtOrDet|||the||a|||REQUIRED|||-NONE-|||0

S these house .
A 1 2|||NN|||houses|||REQUIRED|||-NONE-|||0
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1

S big cats is a fast runner .
A 2 3|||SVA|||are|||REQUIRED|||-NONE-|||0
A 3 4|||ArtOrDet||||||REQUIRED|||-NONE-|||0
A 5 6|||NN|||runners|||REQUIRED|||-NONE-|||0

S
"""


@pytest.fixture()
def files(tmp_path: Path) -> Dict[str, Path]:
    """The files by name; half of them packed."""
    paths = {name: tmp_path / name for name in ("source", "hypothesis.gz", "r0", "r1.gz", "m2.gz")}
    contents = ["\n".join(lines) + "\n" for lines in (SOURCE, HYPOTHESIS, *REFERENCES)]
    for path, content in zip(paths.values(), [*contents, M2], strict=True):
        data = content.encode("utf-8")
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return {name.split(".")[0]: path for name, path in paths.items()}


def arguments(files: Dict[str, Path], *more: Any) -> List[str]:
    hypothesis = ["--source", files["source"], "--hypothesis", files["hypothesis"]]
    return [str(each) for each in (*hypothesis, *more)]


def scores(capsys: pytest.CaptureFixture[str], args: List[str]) -> Dict[str, Any]:
    main([*args, "--json"])
    found: Dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_command_line(files: Dict[str, Path]) -> None:
    """All metrics in a process of its own, as a table; the same seed, the same intervals."""
    references = ["--references", files["r0"], files["r1"]]
    args = arguments(files, "--m2", files["m2"], *references, "--metrics", "m2,gleu,sari")
    command = ["python", "-m", "specdec_plugin.lab.gec", *args, "--samples", "200"]
    heading, *lines = run_cli(command).stdout.splitlines()
    assert heading == "4 sentences; 95 % intervals of 200 resamples"
    names = [line.split("  ")[0] for line in lines]
    assert names == ["M2 precision", "M2 recall", "M2 F0.5", "GLEU"] + [
        f"SARI{each}" for each in ("", " keep", " delete", " add")
    ]
    for line in lines:
        score, low, _, high = line[len("M2 precision") :].split()
        assert float(low) <= float(score) <= float(high)


def test_scores_and_json(files: Dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Matched 4 of 5, and 5 to find: of the second sentence, the annotator who kept it counts."""
    found = scores(capsys, arguments(files, "--m2", files["m2"], "--samples", 50))
    assert found["sentences"] == 4 and found["settings"]["samples"] == 50
    assert list(found["scores"]) == ["M2 precision", "M2 recall", "M2 F0.5"]
    assert [each["score"] for each in found["scores"].values()] == pytest.approx([80, 80, 80])
    assert set(found["scores"]["M2 F0.5"]) == {"score", "low", "high"}
    # The source can be taken from the M2 file.
    hypothesis = ["--hypothesis", str(files["hypothesis"]), "--m2", str(files["m2"])]
    assert scores(capsys, [*hypothesis, "--samples", "50"]) == found
    # A perfect hypothesis; no intervals.
    args = ["--source", files["source"], "--hypothesis", files["r0"], "--references", files["r0"]]
    found = scores(capsys, [*map(str, args), "--samples", "0", "--metrics", "gleu, sari"])
    assert found["scores"]["GLEU"] == {"score": pytest.approx(100)}
    main([*map(str, args), "--samples", "0"])
    assert capsys.readouterr().out == "4 sentences\nGLEU  100.00\n"


def test_lower(files: Dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """Case on either side counts for nothing, and edits of case are not asked for."""
    upper = M2.replace("|||houses", "|||Houses") + "\nS iPhone\nA 0 1|||C|||iphone|||R|||N|||0\n"
    files["m2"].write_bytes(gzip.compress(upper.encode()))
    files["source"].write_text("\n".join([*SOURCE, "iPhone"]).replace("cats", "Cats"))
    files["hypothesis"].write_bytes(gzip.compress("\n".join([*HYPOTHESIS, "iPHONE"]).encode()))
    args = arguments(files, "--m2", files["m2"], "--samples", 0)
    with pytest.raises(PluginError, match="Sentence 3 of"):
        main(args)
    lower = scores(capsys, [*args, "--lower"])
    assert [each["score"] for each in lower["scores"].values()] == pytest.approx([80, 80, 80])
    files["source"].write_text("\n".join([*SOURCE, "iPhone"]))
    assert scores(capsys, args)["scores"]["M2 recall"]["score"] == pytest.approx(100 * 4 / 6)
    assert scores(capsys, [*args, "--lower"]) == lower


def test_mistakes_are_told_in_a_sentence(files: Dict[str, Path], tmp_path: Path) -> None:
    def refused(sentence: str, *more: Any, args: Any = None) -> None:
        with pytest.raises(PluginError, match=sentence):
            main(args or arguments(files, *more))

    short, empty, other = tmp_path / "short", tmp_path / "empty", tmp_path / "other.m2"
    short.write_text("\n".join(SOURCE[:3]))
    empty.write_text("")
    other.write_text(M2.replace("S these house .", "S these house !"))
    refused("nothing to score against. Give --m2 or --references")
    refused("source is missing", args=["--hypothesis", "x", "--references", "y"])
    refused("bleu: there is no such metric", "--m2", files["m2"], "--metrics", "m2,bleu")
    refused("gleu needs --references", "--m2", files["m2"], "--metrics", "gleu")
    refused("m2 needs --m2", "--references", files["r0"], "--metrics", "m2")
    refused("short has 3 sentences, and .*source has 4", "--references", short)
    refused("empty has 0 sentences", "--references", files["r0"], empty)
    refused("empty has 0 sentences", "--m2", empty)
    refused("'these house !', and of .*'these house .'", "--m2", other)
    refused("File not found", "--m2", tmp_path / "none")
    refused("folder", "--references", tmp_path)
    nothing = ["--source", empty, "--hypothesis", empty, "--references", empty]
    refused("empty is empty", args=[*map(str, nothing)])
    for name, value in (
        ("samples", -1),
        ("seed", -1),
        ("gleu-iterations", 0),
        ("max-unchanged-words", -1),
        ("beta", 0),
        ("confidence", 1),
    ):
        refused(f"--{name} {value}: give", "--m2", files["m2"], f"--{name}", value)


ERRANT = '''\
"""Stands for ERRANT: its functions, and an edit for each token that differs."""

from types import SimpleNamespace as Made


def load(language):
    assert language == "en"
    return Made(parse=str.split, annotate=annotate)


def annotate(source, corrected):
    pairs = enumerate(zip(source, corrected))
    return [
        Made(o_start=i, o_end=i + 1, c_toks=[Made(text=new)], type="R:OTHER")
        for i, (old, new) in pairs
        if old != new
    ]
'''


def with_errant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "errant.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "errant", raising=False)


def test_errant(
    files: Dict[str, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    files["source"].write_text("a b c d\ne f g h\n")
    files["hypothesis"].write_bytes(gzip.compress(b"x b c y\ne f g h\n"))
    files["r0"].write_text("x b c d\ne z g h\n")
    files["r1"].write_bytes(gzip.compress(b"x b z y\nz z z h\n"))
    with_errant(tmp_path, monkeypatch, ERRANT)
    args = arguments(files, "--references", files["r0"], files["r1"], "--samples", 0)
    found = scores(capsys, [*args, "--errant"])["scores"]
    # Of two edits the first reference has one (F 1.25 / 2.25), the second both and one
    # more (2.5 / 2.75); then one or three are missed.
    assert list(found) == ["ERRANT precision", "ERRANT recall", "ERRANT F0.5", "GLEU"]
    assert found["ERRANT precision"]["score"] == pytest.approx(100)
    assert found["ERRANT recall"]["score"] == pytest.approx(50)
    files["m2"].write_bytes(
        gzip.compress(
            b"S a b c d\nA 3 4|||R:NOUN|||y|||REQUIRED|||-NONE-|||0\n"
            b"A 1 2|||UNK|||b|||REQUIRED|||-NONE-|||0\n\nS e f g h\n"
        )
    )
    found = scores(capsys, arguments(files, "--m2", files["m2"], "--errant"))["scores"]
    assert [found[f"ERRANT {name}"]["score"] for name in ("precision", "recall")] == [50, 100]


def test_errant_is_missing_or_lacks_its_model(
    files: Dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = arguments(files, "--m2", files["m2"], "--errant")
    with_errant(tmp_path, monkeypatch, "def load(language):\n    raise OSError('no model')\n")
    with pytest.raises(PluginError, match=r"no language model. Run 'python -m spacy download en_"):
        main(args)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        PluginError, match=r"needs ERRANT, which is not installed. Run 'pip install"
    ):
        main(args)


def test_gain_over_a_baseline(files: Dict[str, Path], capsys: pytest.CaptureFixture[str]) -> None:
    more = ["--m2", files["m2"], "--references", files["r0"], files["r1"], "--samples", "50"]
    ours = scores(capsys, arguments(files, *more))["scores"]
    args = arguments({**files, "hypothesis": files["source"]}, *more)
    source = scores(capsys, args)["scores"]
    both = scores(capsys, arguments(files, *more, "--baseline", files["source"]))["scores"]
    assert {name: both[name] for name in ours} == ours
    for name in ours:
        gain = both[f"{name} gain"]
        assert gain["score"] == pytest.approx(ours[name]["score"] - source[name]["score"])
        assert gain["low"] <= gain["high"]
    same = scores(capsys, arguments(files, *more, "--baseline", files["hypothesis"]))["scores"]
    assert all(same[f"{name} gain"] == {"score": 0, "low": 0, "high": 0} for name in ours)
