"""examples/gpu/run.sh on a CPU, with tiny models."""

import gzip
import itertools
import json
import shutil
import statistics
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.support.command_lines import Corpus, run_example

run = partial(run_example, "gpu")
PUBLISHED = Path(__file__).parents[2] / "examples" / "gpu"
TINY = dict(
    DEVICE="cpu", CHECKED="4", CHECKED_ALONE="4", PROCESSES="2", SENTENCES="4", MANY="4",
    BATCHES="1,2", VOCABULARY="320", WIDTH="1", CLUSTERS="4", STATES="200", TOP_K="2",
    NEIGHBOURS="2", LAYERS="1", DIM="16", SYMBOLS="300", LENGTH="8",
)  # fmt: skip


@pytest.mark.slow
def test_from_text_to_tables(
    corpus: Corpus, sentencepieces: Path, tiny_verifier: str, tmp_path: Path
) -> None:
    models, text, output = tmp_path / "models", tmp_path / "text", tmp_path / "out"
    models.mkdir()
    shutil.copy(tiny_verifier, models / "verifier.pt")
    for name in ("spm.model", "dict.en.txt", "dict.es.txt"):
        shutil.copy(sentencepieces / name, models)
    text.mkdir()
    for theirs, ours in (("train", "train"), ("dev", "valid"), ("test", "test")):
        for language in ("en", "es"):
            shutil.copy(Path(corpus.raw_dir) / f"{ours}.{language}", text / f"{theirs}.{language}")
    done = run(text, output, MODELS=str(models), **TINY)
    assert done.returncode == 0, done.stdout + done.stderr
    for size in (1, 8, 64):
        told = (output / "shipped" / f"identity-{size}.txt").read_text("utf-8")
        assert "hybrid-jacobi" in told and "beam" in told
    sizes = {"shipped/one": {1}, "shipped/many": {1, 2}}
    sizes |= {each: {1, 32} for each in ("shipped/samples", "large/speed", "big/speed")}
    for folder, expected in sizes.items():
        found = json.loads((output / folder / "results.json").read_text("utf-8"))
        assert {row["batch size"] for row in found["rows"]} == expected
        assert all(row["seconds"] > 0 for row in found["rows"])
    timed = json.loads((output / "large/projection.json").read_text("utf-8"))
    assert timed["settings"]["symbols"] == 320
    again = run(text, output, MODELS=str(models), **TINY)
    assert again.returncode == 0, again.stderr


def rows_of(text: str, head: str) -> List[List[str]]:
    """The cells of a Markdown table, row by row, without its heads."""
    lines = text.split(head)[1].splitlines()[2:]
    return [line.strip("| ").split(" | ") for line in itertools.takewhile(bool, lines)]


def test_the_published_projections_are_those_of_the_run() -> None:
    printed = (PUBLISHED / "results" / "projection.txt").read_text("utf-8")
    found: Dict[str, List[str]] = {}
    for row in rows_of(printed, "| d | rows |"):
        found.setdefault(row[0], []).append(row[6])
    table = rows_of((PUBLISHED / "README.md").read_text("utf-8"), "| d | 1 row |")
    assert {row[0]: row[1:] for row in table} == found


def test_the_published_checks_found_no_difference() -> None:
    for size, sentences in (("64", "1,975"), ("1", "200")):
        printed = (PUBLISHED / "results" / f"identity-{size}.txt").read_text("utf-8")
        rows = rows_of(printed, "| method | compared with |")
        assert len(rows) == 8
        assert all(row[2:6] == [sentences, sentences, "0", "0"] for row in rows)


def records_of(name: str) -> List[Any]:
    """The lines of a file of results."""
    with gzip.open(PUBLISHED / "results" / f"{name}.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def test_the_published_later_check_found_no_difference() -> None:
    compared: Counter[str] = Counter()
    for each in records_of("identity-again"):
        assert each["differences"] == [] and each["score_difference"] < 1e-5
        compared[each["method"]] += each["sentences"]
    text = " ".join((PUBLISHED / "README.md").read_text("utf-8").split())
    for method, sentences in compared.items():
        assert f"{sentences:,} sentences of `{method}`" in text or (
            f"{sentences:,} of `{method}`" in text
        )


@pytest.mark.parametrize(
    "name, timed, compared, header",
    [
        ("turns", 2, [2], "| method | before, ms | × greedy | after, ms |"),
        ("turns-again", 1, [1, 2], "| method | before, ms | × greedy | third pass |"),
    ],
)
def test_the_published_turns_are_those_of_the_run(
    name: str, timed: int, compared: List[int], header: str
) -> None:
    """Medians of a pass, and medians of ratios in one or two, before and after."""
    with gzip.open(PUBLISHED / "results" / f"{name}.json.gz", "rt") as file:
        found = json.load(file)
    columns = []
    for state in ("before", "after"):
        passes = [
            {
                method: {sentence: taken for turn, sentence, taken, *_ in rows if turn == number}
                for method, rows in found[state]["times"].items()
            }
            for number in range(3)
        ]
        own = passes[timed].values()
        columns += [[f"{1e3 * statistics.median(each.values()):.2f}" for each in own]]
        columns += [
            [
                f"{statistics.median(seconds['greedy'][each] / own[each] for each in own):.2f}"
                for own in seconds.values()
            ]
            for seconds in (passes[number] for number in compared)
        ]
    table = rows_of((PUBLISHED / "README.md").read_text("utf-8"), header)
    assert [row[1:] for row in table] == [list(row) for row in zip(*columns, strict=True)]


@pytest.mark.parametrize(
    "name, table, bases",
    [
        ("latency", 0, ["fairseq beam 5", "fairseq beam 1", "greedy"]),
        ("batches-of-32", 1, ["fairseq beam 5", "fairseq beam 1", "greedy"]),
        ("batches-of-32-again", 2, ["fairseq beam 5", "fairseq beam 1", "greedy"]),
        ("large", 3, ["fairseq beam 1", "greedy"]),
    ],
)
def test_the_published_times_are_those_of_the_journals(
    name: str, table: int, bases: List[str]
) -> None:
    records = records_of(name)[1:]
    seconds: Dict[str, Dict[int, float]] = {}
    for each in records:
        seconds.setdefault(each["method"], {})[each["batch"]] = each["seconds"]
    (turns,) = {tuple(sorted(each)) for each in seconds.values()}
    third = turns[-len(turns) // 3 :]
    text = (PUBLISHED / "README.md").read_text("utf-8").split("| method | ms |", table + 1)[-1]
    expected = [
        [f"{1e3 * statistics.median(own.values()):.1f}"]
        + [
            f"{statistics.median(seconds[base][turn] / own[turn] for turn in each):.2f}"
            for base, each in [*((base, turns) for base in bases), ("greedy", third)]
        ]
        for own in seconds.values()
    ]
    assert [row[1:] for row in rows_of("| method | ms |" + text, "| method | ms |")] == expected


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(tmp_path).returncode == 1
    none = run(tmp_path, tmp_path, DEVICE="nothing")
    assert none.returncode == 1
    assert "PyTorch cannot use DEVICE=nothing. DEVICE=cpu runs without a GPU." in none.stderr
