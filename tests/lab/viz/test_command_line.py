"""``specdec-ddgviz`` as users run it."""

import io
import json
import sys
from types import SimpleNamespace

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.viz.__main__ import main
from tests.support.command_lines import generate_args, hypotheses, run_cli
from tests.support.fifty import MODELS
from tests.support.pages import data_of


def arguments(corpus, verifier, output, *more):
    fixed = [corpus.data_dir, "-s", "en", "-t", "es", "--path", verifier, "--output", output]
    return [str(each) for each in (*fixed, "--max-len-b", 20, *more)]


def charts_of(folder):
    return data_of((folder / "index.html").read_text("utf-8"))["charts"]


def test_ids_of_a_split(corpus, tiny_verifier, tmp_path):
    done = run_cli(
        ["python", "-m", "specdec_plugin.lab.viz"]
        + arguments(corpus, tiny_verifier, tmp_path / "out", "--ids", "3,17,0,3")
    )
    charts = charts_of(tmp_path / "out")
    assert [chart["name"] for chart in charts] == ["sentence-3", "sentence-17", "sentence-0"]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    figures = {f"{chart['name']}.{kind}" for chart in charts for kind in ("png", "svg")}
    assert names == {*figures, "index.html"}
    sources = corpus.lines("test", "en")
    assert [chart["source"] for chart in charts] == [sources[3], sources[17], sources[0]]
    printed = run_cli(generate_args(corpus.data_dir, tiny_verifier, "--decoding", "greedy")).stdout
    greedy = hypotheses(printed)
    assert [chart["output"] for chart in charts] == [greedy[3], greedy[17], greedy[0]]
    assert "DEBUG" not in done.stderr and "iterations: 1.00" not in done.stderr
    assert "index.html in a browser" in done.stdout


def test_standard_input_with_an_empty_line(corpus, tiny_verifier, tmp_path, monkeypatch):
    text = io.TextIOWrapper(io.BytesIO(b"one two\n\nthree and qqq\r\n"), "utf-8")
    monkeypatch.setattr(sys, "stdin", text)
    main(arguments(corpus, tiny_verifier, tmp_path, "--input", "-"))
    charts = charts_of(tmp_path)
    assert [chart["source"] for chart in charts] == ["one two", "", "three and <unk>"]
    assert all(chart["columns"][-1] == "⏎" for chart in charts)
    assert all(len(chart["settled"]) == len(chart["columns"]) for chart in charts)


def test_raw_text(tmp_path):
    """The shipped models, whose folder has the dictionaries."""
    (tmp_path / "in").write_text("The file is closed.\n", "utf-8")
    folder = SimpleNamespace(data_dir=MODELS)
    more = ["--input", tmp_path / "in", "--sentencepiece", MODELS / "spm.model"]
    main(arguments(folder, MODELS / "verifier.pt", tmp_path / "out", *more))
    (chart,) = charts_of(tmp_path / "out")
    assert chart["source"] == "The file is closed."


def test_subwords_of_another_project(corpus, tiny_verifier, tmp_path):
    (tmp_path / "in").write_text("one two\n", "utf-8")
    more = ["--input", tmp_path / "in", "--sentencepiece", MODELS / "spm.model"]
    with pytest.raises(PluginError, match="does not belong to this model"):
        main(arguments(corpus, tiny_verifier, tmp_path / "out", *more))


@pytest.mark.parametrize(
    "relaxed", [[], ["--top-beta", 3, "--tolerance", 3], ["--certified-projection"]]
)
def test_drafts(relaxed, corpus, tiny_verifier, tiny_drafter, tmp_path):
    more = ["--decoding", "specdec", "--drafter-path", tiny_drafter, "--block-size", 3, *relaxed]
    main(arguments(corpus, tiny_verifier, tmp_path, "--ids", ",".join(map(str, range(6))), *more))
    charts = charts_of(tmp_path)
    flags = ["--decoding", "specdec", "--drafter-path", tiny_drafter, "--batch-size", 1, *relaxed]
    flags += ["--block-size", 3]
    printed = run_cli(generate_args(corpus.data_dir, tiny_verifier, *flags)).stdout
    assert [chart["output"] for chart in charts] == hypotheses(printed)[:6]
    kinds = [cell[1] for chart in charts for line in chart["lines"] for cell in line["cells"]
             if cell]  # fmt: skip
    assert {"accepted", "before", "verifier"} <= {*kinds}
    assert relaxed or "top-beta" not in kinds
    for chart in charts:
        drafts = [line for line in chart["lines"] if line["label"].endswith("draft")]
        assert chart["edges"] is None and len(drafts) == max(chart["settled"])


@pytest.mark.parametrize(
    "more, words",
    [
        ([], "either --input"),
        (["--ids", 1, "--input", "-"], "either --input"),
        (["--ids", 21], "sentences 0 to 20"),
        (["--ids", 1, "--gen-subset", "nowhere"], "nowhere"),
        (["--ids", 1, "--sentencepiece", "spm"], "no effect"),
        (["--ids", 1, "--block-size", 3], "--block-size 3 would have no effect"),
        (["--ids", 1, "--decoding", "specdec", "--tolerance", 2], "--top-beta"),
        (["--ids", 1, "-s", "de"], "dict.de.txt"),
        (["--ids", 1, "--path", "none.pt"], "none.pt"),
        (["--input", "none.txt"], "File not found: none.txt"),
        (["--input", "EMPTY"], "nothing to translate"),
        (["--input", "LONG"], "Sentence 1 has 1,101 tokens"),
        (["--input", "LONG", "--sentencepiece", "none"], "none is not a file"),
        (["--input", "LONG", "--sentencepiece", "LONG"], "not a SentencePiece model"),
        (["--ids", 1, "--output", "LONG"], "is a file"),
    ],
)
def test_mistakes_are_told_in_a_sentence(more, words, corpus, tiny_verifier, tmp_path):
    files = {"EMPTY": "", "LONG": "one\n" + "one " * 1100 + "\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    more = [tmp_path / each if each in files else each for each in more]
    with pytest.raises(PluginError, match=words) as caught:
        main(arguments(corpus, tiny_verifier, tmp_path / "out", *more))
    assert str(caught.value).endswith(".") and not (tmp_path / "out").exists()


def test_help(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    printed = capsys.readouterr().out
    assert printed.count("specdec-ddgviz") >= 3 and "examples:" in printed


def test_numbers_are_json(corpus, tiny_verifier, tmp_path):
    main(arguments(corpus, tiny_verifier, tmp_path, "--ids", "1"))
    (chart,) = charts_of(tmp_path)
    assert json.dumps(chart, allow_nan=False)
    for line in chart["lines"]:
        for _, kind, probability in line["cells"]:
            assert kind in ("right", "wrong", "settles") and 0 < probability <= 1
