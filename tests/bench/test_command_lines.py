"""``specdec-bench`` and the demo as users run them."""

import json
import os

import pytest

from ..conftest import ROOT, run_cli


def bench(corpus, verifier, *more):
    args = ["specdec-bench", corpus.data_dir, "-s", "en", "-t", "es", "--path", verifier]
    return [*args, "--max-len-b", 20, "--post-process", "sentencepiece", *more]


def test_all_methods_side_by_side(corpus, tiny_verifier, tiny_drafter, tmp_path):
    names = ["fairseq beam 5", "fairseq beam 1", "greedy", "specdec", "specdec++", "nat"]
    reference = os.path.join(corpus.raw_dir, "test.es")
    done = run_cli(
        bench(corpus, tiny_verifier, "--drafter-path", tiny_drafter, "--batch-size", 4)
        + ["--methods", ",".join(names), "--reference", reference, "--output", tmp_path]
    )
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    rows = {row["method"]: row for row in results["rows"]}
    assert list(rows) == names
    assert {row["sentences"] for row in rows.values()} == {21}
    for exact in ("fairseq beam 1", "greedy", "specdec"):
        assert rows[exact]["equal to fairseq greedy"] == 21
    assert rows["greedy"]["accepted tokens"] == 1.0
    assert rows["specdec"]["accepted tokens"] > 1.0
    assert all(row["p50_ms"] > 0 and 0 <= row["bleu"] <= 100 for row in rows.values())
    assert results["machine"]["torch"] and results["options"]["batch_size"] == 4
    assert (tmp_path / "results.md").read_text("utf-8").strip() in done.stdout


def test_part_of_a_split(corpus, tiny_verifier, tmp_path):
    run_cli(
        bench(corpus, tiny_verifier, "--methods", "greedy", "--sentences", 7)
        + ["--output", tmp_path]
    )
    (row,) = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    assert row["sentences"] == 7


def test_mistakes_are_told_in_a_sentence(corpus, tiny_verifier, tmp_path):
    short = tmp_path / "short.es"
    short.write_text("uno\n", "utf-8")
    for more, words in (
        (["--methods", "beam 7"], "there is no such method"),
        (["--methods", "specdec"], "needs a drafter"),
        (["--methods", "greedy", "--reference", short], "has 1 lines"),
        (["--methods", "greedy", "--subset", "nowhere"], "nowhere"),
        (["--methods", "greedy", "-s", "de"], "dict.de.txt"),
        (["--methods", "greedy", "--reference", tmp_path / "none"], "does not exist"),
    ):
        done = run_cli(bench(corpus, tiny_verifier, *more), check=False)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr, done.stderr
        assert words in done.stderr.strip().splitlines()[-1]


def test_demo_with_the_shipped_models():
    lines = "The file is closed.\n\nqqq ⌘\nReturns the number of items in the list.\n"
    args = ["python", "-m", "specdec_plugin.demo", "--input", "-", "--repeats", 1]
    done = run_cli(args, input=lines, cwd=ROOT)
    assert "4 of 4 translations by SpecDec equal fairseq's greedy decoding." in done.stdout
    for method in ("fairseq beam 5", "fairseq beam 1", "greedy", "specdec"):
        assert f"\n{method} " in done.stdout


def test_demo_elsewhere_says_where_its_models_are(tmp_path):
    done = run_cli(["python", "-m", "specdec_plugin.demo"], check=False, cwd=tmp_path)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert "verifier.pt does not exist" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    "more, content, words",
    [
        ([], b"", "nothing to translate"),
        ([], "se\u00f1al".encode("latin-1"), "not UTF-8"),
        (["--repeats", 0], b"one", "at least 1"),
    ],
)
def test_demo_tells_what_it_cannot_read(more, content, words, tmp_path):
    (tmp_path / "text").write_bytes(content)
    args = ["python", "-m", "specdec_plugin.demo", "--input", tmp_path / "text", *more]
    done = run_cli(args, check=False, cwd=ROOT)
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert words in done.stderr.strip().splitlines()[-1]
