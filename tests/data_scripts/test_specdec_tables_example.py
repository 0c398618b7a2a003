"""examples/specdec_tables/run.sh with tiny models: every table, and then nothing to do."""

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

import pytest
from example_results import ROOT, with_tables

from tests.support.command_lines import Corpus, run_example
from tests.support.teachers import LAYERS_2_DIM_16, train_teacher

run = partial(run_example, "specdec_tables")
TINY = dict(
    LAYERS="2", DIM="16", SHARDS="1", UPDATES_TEACHER="2", UPDATES_VERIFIER="2", K="3", ROUND="2",
    MOST="4", GAIN="0", EQUAL="updates", WARMUP="1", HOLD="1", DECAY="2", KS="2 3", BETAS="3 5",
    TAUS="1 3", BATCHES="1 4", SEEDS="2", DEEP="3 1", UPDATES_DEEP="2", HEADS="2", LEAST="2",
    HEADS_K="2", UPDATES_HEADS="2", BLOCKS="3", CLUSTERS="4 8", STATES="300", UPDATES_MANY="2",
    SIZE_MANY="60", SENTENCES="4", MAX_LEN="12", THREADS="1",
)  # fmt: skip
TABLES = "main k beta-tau forms ensemble deep batch blockwise jacobi clusters"
#: Of a verifier and a drafter.
PAIR = ["fairseq beam 5", "fairseq beam 1", "greedy", "nat", "specdec"]
PAIR += ["specdec++ β=3 τ=1", "specdec++ β=5 τ=3"]


@pytest.fixture()
def text(corpus: Corpus, tmp_path: Path) -> Path:
    """The tiny corpus as two pairs of languages."""
    for language in ("es", "fr"):
        folder = tmp_path / "text" / f"en-{language}"
        folder.mkdir(parents=True)
        for theirs, ours in (("train", "train"), ("dev", "valid"), ("test", "test")):
            for side, name in (("en", "en"), ("es", language)):
                shutil.copy(Path(corpus.raw_dir) / f"{ours}.{side}", folder / f"{theirs}.{name}")
    return tmp_path / "text"


@pytest.fixture()
def started(text: Path, tmp_path: Path) -> List[Path]:
    """OUTPUT and TEACHER: models that were trained before, with a few updates."""
    given, output = tmp_path / "given", tmp_path / "out"
    train_teacher(text / "en-es", given, 60, *LAYERS_2_DIM_16)
    (output / "models").mkdir(parents=True)
    for name in ("verifier.pt", "models/teacher2.pt"):
        shutil.copy(given / "teacher.pt", output / name)
    for folder in ("distilled", "greedy"):
        shutil.copytree(given / "bin", output / folder / "bin")
    return [output, given]


def rows_of(output: Path) -> Dict[str, List[Dict[str, Any]]]:
    """By table."""
    found = {path.stem: json.loads(path.read_text("utf-8")) for path in output.glob("*.json")}
    for table in found.values():
        assert {"machine", "date", "command", "commit", "settings"} <= table.keys()
    return {name: table["rows"] for name, table in found.items()}


def columns(rows: List[Dict[str, Any]], *names: str) -> List[Any]:
    found = [tuple(row.get(name) for name in names) for row in rows]
    return found if len(names) > 1 else [each for (each,) in found]


@pytest.mark.slow
def test_every_table(text: Path, started: List[Path], tmp_path: Path) -> None:
    settings = dict(TINY, TABLES=TABLES, OTHERS=str(text / "en-fr"))
    output = started[0]
    for part in (TABLES[: TABLES.index(" ensemble")], TABLES):  # as after an interruption
        done = run(text / "en-es", *started, forked=True, **{**settings, "TABLES": part})
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    rows = rows_of(output / "results")
    assert {*rows} == {*TABLES.split(), "rounds"}
    assert columns(rows["rounds"], "updates") == [2, 4]
    check_specdec(rows, output)
    check_others(rows)

    # The README's comments fit these files.
    shutil.copytree(output / "results", tmp_path / "results")
    readme = (ROOT / "examples" / "specdec_tables" / "README.md").read_text("utf-8")
    filled = with_tables(readme, tmp_path)
    assert "Not measured yet" not in filled
    assert re.search(r"^\| β=3 τ=1|^\| 1.0 \| \d+\.\d\d / \d", filled, re.MULTILINE)

    times = {path: path.stat().st_mtime_ns for path in output.rglob("*")}
    again = run(text / "en-es", *started, forked=True, **settings)
    assert again.returncode == 0 and "all tables are in" in again.stdout
    assert {path: path.stat().st_mtime_ns for path in output.rglob("*")} == times


@pytest.mark.slow
def test_jacobi_with_a_trained_verifier(text: Path, started: List[Path], tmp_path: Path) -> None:
    output, given = started
    shutil.copy(given / "teacher.pt", given / "verifier.pt")
    settings = dict(TINY, TABLES="jacobi", VERIFIER=str(given))
    done = run(text / "en-es", tmp_path / "new", forked=True, **settings)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    rows = rows_of(tmp_path / "new" / "results")
    assert {*rows} == {"jacobi"}
    check_jacobi(rows["jacobi"])


@pytest.mark.slow
def test_models_alone_by_a_trained_verifier_and_decoded_text(
    text: Path, started: List[Path], tmp_path: Path
) -> None:
    output, given = tmp_path / "new", started[1]
    shutil.copy(given / "teacher.pt", given / "verifier.pt")
    decoded = given / "pieces" / "train.es"  # the human translation: a perfect teacher's
    shutil.copytree(given / "bin", output / "greedy" / "bin")  # of itself it never ends
    settings = dict(TINY, TABLES="main", VERIFIER=str(given), DISTILLED=str(decoded))
    done = run(text / "en-es", output, given, forked=True, UNTIL="models", **settings)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert (output / "models" / "nat-base.pt").exists()
    assert not (output / "verifier.pt").exists() and not any((output / "results").iterdir())
    kept = (output / "distilled" / "filtered" / "train.es").read_text("utf-8").splitlines()
    assert {*kept} <= {*decoded.read_text("utf-8").splitlines()}

    done = run(text / "en-es", output, given, forked=True, **settings)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    table = json.loads((output / "results" / "main.json").read_text("utf-8"))
    assert "VERIFIER=" in table["command"] and "DISTILLED=" in table["command"]

    other = shutil.copytree(given, tmp_path / "other")
    (other / "dict.en.txt").write_text("odd 1\n", "utf-8")
    settings.update(TABLES="k", VERIFIER=str(other))
    again = run(text / "en-es", output, given, **settings)
    assert again.returncode == 1 and "has other subwords than" in again.stderr


def check_specdec(rows: Dict[str, List[Dict[str, Any]]], output: Path) -> None:
    """The tables of Xia et al. (2023)."""
    assert columns(rows["main"], "method") == ["fairseq beam 5", *PAIR]
    by_name = {row["method"]: row for row in rows["main"][1:]}
    for name in ("greedy", "specdec"):  # exact acceptance changes nothing
        assert by_name[name]["equal to fairseq greedy"] == by_name[name]["sentences"] == 4
    assert all(row["bleu"] >= 0 for row in rows["main"])
    assert by_name["nat"]["accepted tokens"] > 1.0 == by_name["greedy"]["accepted tokens"]
    assert (output / "results" / "speedups.png").stat().st_size > 1000
    rounds = (output / "models" / "nat-base.rounds").read_text("utf-8").splitlines()
    assert 1 <= len(rounds) <= 2 and rounds[0].startswith("2 ")

    assert columns(rows["k"], "method", "k") == [
        ("fairseq beam 5", None), ("greedy", None), ("specdec++", 2), ("specdec++", 3)
    ]  # fmt: skip
    updates = int(rounds[-1].split()[0])
    assert columns(rows["k"][2:], "updates") == [updates, updates]
    assert columns(rows["beta-tau"][1:], "β", "τ") == [(3, 1.0), (3, 3.0), (5, 1.0), (5, 3.0)]

    forms = columns(rows["forms"], "drafter", "method")
    expected = [(None, "greedy"), ("heads", "specdec"), ("heads", "β=3"), ("heads", "β=5")]
    for form in ("nat-plain", "nat-base", "nat-wide", "ours"):
        expected += [(form, name) for name in ("specdec", "β=3 τ=1", "β=5 τ=3")]
    assert forms == expected
    exact = [row for row in rows["forms"] if row["method"] in ("greedy", "specdec")]
    assert all(row["equal to greedy"] == row["sentences"] for row in exact)
    assert {*columns(rows["forms"][1:], "updates")} == {updates}

    both = [(1, "fairseq beam 5"), *((1, name) for name in PAIR)]
    both += [(2, "fairseq beam 5"), *((2, name) for name in PAIR)]
    assert columns(rows["ensemble"], "teachers", "method") == both
    deep = [("2-2", name) for name in PAIR] + [("3-1", name) for name in PAIR]
    assert columns(rows["deep"], "layers", "method") == deep
    methods = ["fairseq beam 5", "greedy", "specdec", "specdec++"]
    assert columns(rows["batch"], "batch size", "method") == [
        (size, name) for name in methods for size in (1, 4)
    ]
    assert all(row["memory in MB"]["peak"] > 0 for row in rows["batch"])


def check_others(rows: Dict[str, List[Dict[str, Any]]]) -> None:
    """The tables of the other papers."""
    settings = ["regular", "distilled"]
    found = columns(rows["blockwise"], "k", "setting")
    assert {*found} == {
        *((1, name) for name in settings),
        *((2, name) for name in [*settings, "fine-tuned", "both"]),
        *((2, f"both, {name}") for name in ("top-2", "top-3", "ℓ = 2")),
    }
    assert len({*found}) == len(found)
    by_place = dict(zip(found, rows["blockwise"], strict=True))
    for name in [*settings, "fine-tuned", "both"]:  # exact acceptance changes nothing
        assert by_place[2, name]["equal to greedy"] == by_place[2, name]["sentences"]
    for name in settings:  # a frozen model says what it said
        assert by_place[1, name]["bleu"] == by_place[2, name]["bleu"]

    check_jacobi(rows["jacobi"])

    active = {
        (row["text"], row["clusters"]): row["active at most in %"] for row in rows["clusters"]
    }
    texts = ("source and target", "target")
    assert {*active} == {(name, count) for name in texts for count in (4, 8)}
    assert all(0 < share <= 100 for share in active.values())


def check_jacobi(rows: List[Dict[str, Any]]) -> None:
    """The table of Santilli et al. (2023)."""
    assert columns(rows, "method", "b") == [
        ("fairseq beam 5", None), ("fairseq beam 1", None), ("greedy", None), ("jacobi", None),
        ("gs-jacobi", 3), ("hybrid-jacobi", 3),
    ]  # fmt: skip
    assert all(row["equal to fairseq greedy"] == row["sentences"] for row in rows[1:])


def test_refusals(tmp_path: Path) -> None:
    assert "usage: run.sh" in run("--help").stdout
    assert run(tmp_path).returncode == 1
    for settings, sentence in (
        ({"TABLES": " "}, "TABLES names no table"),
        ({"TABLES": "main x"}, "There is no table x"),
        ({"TABLES": "clusters"}, "give folders of pairs as OTHERS"),
        ({"OTHERS": "some/es-fr"}, "names begin with en-"),
        ({"FORMS": "ours x"}, "FORMS names x, which is no form"),
        ({"FORMS": " "}, "FORMS names no form"),
        ({"EQUAL": "luck"}, "EQUAL=luck: give time or updates"),
        ({"DEEP": "12"}, "give two numbers of layers"),
        ({"VERIFIER": "some"}, "need TEACHER, its teacher"),
        ({"VERIFIER": "some", "TABLES": "jacobi"}, "some holds no verifier.pt"),
    ):
        done = run(tmp_path, tmp_path / "out", **settings)
        assert done.returncode == 1 and sentence in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
