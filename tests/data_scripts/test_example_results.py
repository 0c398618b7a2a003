"""data_scripts/example_results.py: READMEs of examples have the figures of committed files."""

import json
import re
from pathlib import Path
from typing import Any, Dict

import example_results
import pytest
from example_results import readmes, with_tables

from specdec_plugin.errors import PluginError
from tests.support.files import some


def page_name(path: Path) -> str:
    return str(path.relative_to(example_results.ROOT) if path.is_absolute() else path)


@pytest.mark.parametrize("readme", readmes(), ids=page_name)
def test_a_readme_has_the_present_tables(readme: Path) -> None:
    text = readme.read_text("utf-8")
    # Else: python data_scripts/example_results.py tables
    assert with_tables(text, readme.parent) == text


#: A cell that is a figure, maybe with others behind it.
FIGURE = re.compile(r"\|\s*\**[+-]?\d[\d,]*(\.\d+)?( %)?\**\s*(?=[|(/])")
MADE = re.compile(r"<!-- (table of|results).*?<!-- end of (table|results) -->", re.DOTALL)
#: Pages with tables of numbers that are no results, or that a test of their own compares.
OTHERS = {
    "checkpoints/gec-en/README.md": "settings of training",
    "docs/options.md": "defaults, which the code prints",
    "docs/benchmarks.md": "numbers of sentences, beside reports",
    "docs/serving.md": "numbers of errors",
    "examples/gpu/README.md": "compared by test_gpu_example.py",
}


@pytest.mark.parametrize("page", [Path("README.md"), *readmes()], ids=page_name)
def test_every_table_of_figures_is_made(page: Path) -> None:
    """Of a file of results, which a test compares with it."""
    text = MADE.sub("", (example_results.ROOT / page).read_text("utf-8"))
    by_hand = [line for line in text.splitlines() if FIGURE.search(line)]
    assert not by_hand or page_name(page) in OTHERS, by_hand


def test_every_result_names_its_origin() -> None:
    for path in some((example_results.ROOT / "examples").glob("*/results/*.json")):
        assert {"machine", "command", "date", "rows"} <= json.loads(path.read_text("utf-8")).keys()


def scores(folder: Path, name: str, value: float) -> str:
    estimates = {
        "F0.5": {"score": value, "low": value - 1, "high": value + 1.25},
        "F0.5 gain": {"score": 2.0, "low": -0.5, "high": 4.0},
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"sentences": 3, "settings": {}, "scores": estimates}), "utf-8")
    return str(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An example's folder with collected scores and a benchmark."""
    (tmp_path / "results").mkdir()
    rows = [f"{name}={scores(tmp_path, name, value)}" for name, value in (("a", 40), ("b", 41.126))]
    output = str(tmp_path / "results" / "scores.json")
    example_results.main(["collect", output, "--command", "run.sh x", "--setting", "seed=1", *rows])
    bench = {
        "rows": [{"method": "greedy", "p50_ms": 7.25, "accepted tokens": 1.0}],
        "by edit ratio": [
            {"edit ratio": "0", "method": "greedy", "p50_ms": 1234.5},
            {"edit ratio": "0", "method": "specdec", "p50_ms": 7.5},
        ],
    }
    (tmp_path / "results" / "bench.json").write_text(json.dumps(bench), "utf-8")
    return tmp_path


def table(mark: str, folder: Path) -> list:
    text = with_tables(
        f"Before\n<!-- table of {mark} -->\n| old |\n<!-- end of table -->\nafter\n", folder
    )
    assert text.startswith("Before\n") and text.endswith("<!-- end of table -->\nafter\n")
    assert "| old |" not in text and with_tables(text, folder) == text
    return [line for line in text.splitlines() if line.startswith("|")]


def test_scores_stand_with_their_intervals(folder: Path) -> None:
    assert table("results/scores.json", folder) == [
        "| system | F0.5 | F0.5 gain |",
        "| --- | ---: | ---: |",
        "| a | 40.00 (39.0 to 41.2) | +2.00 (-0.5 to +4.0) |",
        "| b | 41.13 (40.1 to 42.4) | +2.00 (-0.5 to +4.0) |",
    ]
    assert table("results/scores.json: F0.5", folder)[0] == "| system | F0.5 |"


def test_benchmarks(folder: Path) -> None:
    assert table("results/bench.json", folder)[::2] == [
        "| method | ms a sentence | accepted tokens |",
        "| greedy | 7.25 | 1.00 |",
    ]
    by_ratio = table("results/bench.json: by edit ratio, edit ratio, method, ms a sentence", folder)
    assert by_ratio[2:] == ["| 0 | greedy | 1,234.50 |", "| 0 | specdec | 7.50 |"]
    one = "results/bench.json: by edit ratio, method=specdec, edit ratio, ms a sentence"
    assert table(one, folder)[2:] == ["| 0 | 7.50 |"]


def grid(folder: Path, *rows: Dict[str, Any]) -> None:
    (folder / "results" / "grid.json").write_text(json.dumps({"rows": rows}), "utf-8")


def test_two_settings_across(folder: Path) -> None:
    cells = [(1.0, 3, 26.125), (1.0, 5, 27.0), (2.5, 5, 28.0)]
    rows = [{"τ": tau, "β": beta, "bleu": bleu, "sentences": 2} for tau, beta, bleu in cells]
    rows[0]["iterations"] = 11
    grid(folder, {"method": "greedy", "bleu": 1.0}, *rows)
    assert table("results/grid.json: BLEU / iterations by τ across β", folder) == [
        "| τ | β = 3 | β = 5 |",
        "| --- | ---: | ---: |",
        "| 1.0 | 26.12 / 5.50 | 27.00 / – |",
        "| 2.5 |  | 28.00 / – |",
    ]
    grid(folder, {"k": 2, "setting": "both", "bleu": 1.0}, {"k": 2, "setting": "both", "bleu": 2.0})
    with pytest.raises(PluginError, match="several rows have k 2, both"):
        table("results/grid.json: BLEU by k across setting", folder)
    with pytest.raises(PluginError, match="no row has k and τ"):
        table("results/grid.json: BLEU by k across τ", folder)


def test_several_files_in_one_table(folder: Path) -> None:
    row = {"equal to fairseq beam 5": 3, "sentences": 4, "seconds": 2.0, "tokens": 2400}
    for size in (1, 8):
        rows = [{"method": name, "batch size": size, **row} for name in ("beam", "greedy")]
        path = folder / "results" / f"batch-{size}.json"
        path.write_text(json.dumps({"rows": rows}), "utf-8")
    both = "results/batch-1.json results/batch-8.json: method=beam, batch size, tokens a second"
    assert table(both, folder)[2:] == ["| 1 | 1,200 |", "| 8 | 1,200 |"]
    later = f"<!-- table of {both.replace('-8', '-9')} -->\nNot yet.\n<!-- end of table -->\n"
    assert with_tables(later, folder) == later


def test_figures_that_are_computed(folder: Path) -> None:
    memory = {"verifier": 4.0, "drafter": 2.5, "peak": 9.0}
    row = {"method": "nat", "iterations": 5, "sentences": 4, "repetition percent": 0.5}
    greedy = {"method": "greedy", "repetition percent": 0.5}
    grid(folder, {**row, "memory in MB": memory}, {"method": "fairseq beam 1"}, greedy)
    names = "method, iterations, weights in MB, memory in MB, repeated tokens in %"
    assert table(f"results/grid.json: {names}", folder)[2:] == [
        "| nat | 1.25 | 6.50 | 9.00 | 0.50 |",
        "| greedy |  |  |  | 0.50 |",
    ]
    times = {"p50_ms": 7.25, "p90_ms": 9.5, "p99_ms": 12.0}
    equal = {"equal to fairseq greedy": 4, "sentences": 4}
    seconds = {"encoder": 1.0, "drafter": 1.0, "verifier": 2.0, "projection": 0.0, "total": 5.0}
    pace = {"accepted tokens": 3.0, "median speed-up over greedy": 1.5}
    flops = {"GFLOPs a sentence": {"encoder": 1.0, "total": 3.5}}
    grid(folder, {"method": "x", **times, **equal, "seconds by part": seconds, **pace, **flops})
    names = "median ms (p90; p99), equal to fairseq's greedy, verifier in %, break-even"
    (found,) = table(f"results/grid.json: {names}, GFLOPs of decoding", folder)[2:]
    assert found == "| 7.2 (10; 12) | 4 of 4 | 40 | 2.00 | 2.50 |"


def test_what_is_not_measured_yet_has_no_table(folder: Path) -> None:
    text = "<!-- table of results/later.json: BLEU -->\nNot yet.\n<!-- end of table -->\n"
    assert with_tables(text, folder) == text
    filled = text.replace("Not yet.", "| BLEU |")
    with pytest.raises(PluginError, match=r"later.json is no file of results"):
        with_tables(filled, folder)


def test_a_changed_digit_is_found(folder: Path) -> None:
    mark = "<!-- table of results/scores.json -->\n<!-- end of table -->\n"
    text = with_tables(mark, folder)
    wrong = text.replace("40.00", "40.01")
    assert wrong != text == with_tables(wrong, folder)
    readme = folder / "README.md"
    readme.write_text(wrong, "utf-8")
    example_results.main(["tables", str(readme)])
    assert readme.read_text("utf-8") == text


def test_a_readme_stays_until_the_new_one_is_whole(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    readme = folder / "README.md"
    readme.write_text("old\n", "utf-8")
    monkeypatch.setattr(example_results, "with_tables", lambda text, folder: "new \ud800")
    with pytest.raises(UnicodeEncodeError):
        example_results.main(["tables", str(readme)])
    assert readme.read_text("utf-8") == "old\n"


def test_refusals(folder: Path) -> None:
    def refused(sentence: str, mark: str) -> None:
        with pytest.raises(PluginError, match=sentence):
            table(mark, folder)

    refused("no.json is no file of results", "results/no.json")
    refused("has no column 'GLEU'", "results/scores.json: GLEU")
    refused("holds no rows", "results/scores.json: by edit ratio")
    refused("holds no rows of", "results/bench.json: method=fast, ms a sentence")
    grid(folder, {"symbols": 9})
    refused("has columns of its own", "results/grid.json")
    (folder / "results" / "empty.json").write_text('{"rows": []}', "utf-8")
    refused("empty.json holds no rows", "results/empty.json results/bench.json: method")
    with pytest.raises(PluginError, match=r"File not found: .*NOSUCH\.md"):
        example_results.main(["tables", str(folder / "NOSUCH.md")])
    output = str(folder / "out.json")
    with pytest.raises(PluginError, match="'a' is not NAME=VALUE"):
        example_results.main(["collect", output, "--command", "x", "a"])
    with pytest.raises(PluginError, match="holds no scores"):
        bench = folder / "results" / "bench.json"
        example_results.main(["collect", output, "--command", "x", f"a={bench}"])
