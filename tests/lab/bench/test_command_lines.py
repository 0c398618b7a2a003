"""``specdec-bench`` as users run it."""

import json
import os
from pathlib import Path

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.lab import records
from specdec_plugin.lab.bench import timing
from specdec_plugin.lab.bench.__main__ import main
from specdec_plugin.methods.build import build_generator
from specdec_plugin.tasks import parallel_decoding
from tests.support.command_lines import run_cli


def bench(corpus, verifier, *more):
    args = ["specdec-bench", corpus.data_dir, "-s", "en", "-t", "es", "--path", verifier]
    return [*args, "--max-len-b", 20, "--post-process", "sentencepiece", *more]


def test_all_methods_side_by_side(corpus, tiny_verifier, tiny_drafter, tmp_path):
    names = ["fairseq beam 5", "fairseq beam 1", "greedy", "specdec", "specdec++", "nat"]
    reference = os.path.join(corpus.raw_dir, "test.es")
    done = run_cli(
        bench(corpus, tiny_verifier, "--drafter-path", tiny_drafter, "--batch-size", 4)
        + ["--draft-rows", 0]
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
    assert all(row["memory in MB"]["verifier"] > 0 for row in rows.values())
    assert (
        rows["specdec"]["memory in MB"]["drafter"] > 0 == rows["greedy"]["memory in MB"]["drafter"]
    )
    assert rows["specdec"]["iterations"] < rows["specdec"]["tokens"] == rows["greedy"]["iterations"]
    assert results["options"]["seed"] == 1 and results["options"]["tolerance"] == 3
    assert results["command"].startswith("specdec-bench ") and results["date"]
    for words in ("| time by part, % |", "| memory, MB |", results["command"], "BLEU is sacreBLEU"):
        assert words in done.stdout
    assert "| GFLOPs a sentence |" in done.stdout and "÷ speed-up over greedy" in done.stdout
    spent = {name: row["GFLOPs a sentence"]["total"] for name, row in rows.items()}
    assert spent["fairseq beam 5"] > 2 * spent["fairseq beam 1"] > 0
    assert spent["fairseq beam 1"] == pytest.approx(spent["greedy"])
    assert (tmp_path / "speedup-distribution.png").stat().st_size > 5000
    assert (tmp_path / "speedup-distribution.svg").exists()
    assert "DEBUG" not in done.stderr


def bench_here(*args):
    """The same in this process, which need not start."""
    _, *args = bench(*args)
    main([*map(str, args), *([] if "--threads" in args else ["--threads", "1"])])


def rows_of(folder):
    return json.loads((folder / "results.json").read_text("utf-8"), parse_constant=pytest.fail)[
        "rows"
    ]


def test_beam_search_beside_fairseqs(corpus, tiny_verifier, tmp_path, capsys):
    names = ["fairseq beam 5", "fairseq beam 1", "greedy", "beam", "specdec beam"]
    args = ["--methods", ",".join(names), "--sweep", "batch", "--batch-sizes", "1,8"]
    bench_here(corpus, tiny_verifier, *args, "--output", tmp_path)
    rows = rows_of(tmp_path)
    assert [(row["batch size"], row["method"]) for row in rows] == [
        (size, name) for size in (1, 8) for name in names
    ]
    for row in rows:
        search = "beam 5" if row["method"] in names[3:] else "greedy"
        equal = {key: count for key, count in row.items() if key.startswith("equal")}
        assert [*equal] == [f"equal to fairseq {search}"]
        assert equal == {f"equal to fairseq {search}": 21} or row["method"] == "fairseq beam 5"
        assert row["median speed-up over fairseq beam 5"] > 0
    assert rows[0]["equal to fairseq greedy"] < 21
    spent = {row["method"]: row.get("GFLOPs a sentence") for row in rows[:5]}
    # fairseq projects the source for each beam.
    assert spent["greedy"]["total"] < spent["beam"]["total"] < spent["fairseq beam 5"]["total"]
    printed = capsys.readouterr().out
    assert "| equal to fairseq greedy | equal to fairseq beam 5 |" in printed
    assert "| tokens a second |" in printed


def test_beam_searches_beside_each_other(corpus, tiny_verifier, tmp_path):
    args = ["--methods", "beam,specdec beam", "--batch-size", 4, "--drafter-dtype", "int8"]
    bench_here(corpus, tiny_verifier, *args, "--output", tmp_path)
    assert [row["equal to beam"] for row in rows_of(tmp_path)] == [21, 21]


def test_samples_beside_fairseqs(corpus, tiny_verifier, tmp_path):
    names = ["fairseq beam 1", "greedy", "specdec self", "hybrid-jacobi"]
    drawn = {}
    for seed, more in ((1, []), (2, []), (3, ["--sampling-topk", 1, "--temperature", 0.5])):
        folder = tmp_path / str(seed)
        args = ["--methods", ",".join(names), "--batch-size", 4, "--draft-rows", 0, *more]
        args += ["--sampling", "--seed", seed, "--output", folder]
        bench_here(corpus, tiny_verifier, *args)
        fairseqs, *ours = rows_of(folder)
        assert [row["equal to greedy"] for row in ours] == [21] * 3
        assert not any(key.startswith("equal") for key in fairseqs)
        assert all(row["median speed-up over fairseq beam 1"] > 0 for row in ours)
        drawn[seed] = tokens_of(folder)
    assert all(drawn[1][name] != drawn[2][name] for name in names)
    assert drawn[1]["greedy"] != drawn[1]["fairseq beam 1"]  # whose noise is PyTorch's
    assert all(drawn[3][name] == drawn[3]["greedy"] for name in names)  # of one symbol


def tokens_of(folder):
    """By method and sentence, the hypotheses in a journal."""
    found = {}
    for line in (folder / "journal.jsonl").read_text("utf-8").splitlines()[1:]:
        record = json.loads(line)
        found.setdefault(record["method"], {}).update(record["tokens"])
    return found


def test_proposal_heads_beside_a_drafter(
    corpus, tiny_verifier, tiny_drafter, tiny_heads, tmp_path, capsys
):
    names = "fairseq beam 1,greedy,specdec,blockwise"
    fixed = ["--drafter-path", tiny_drafter, "--heads-path", tiny_heads, "--methods", names]
    bench_here(corpus, tiny_verifier, *fixed, "--output", tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    exact = {row["method"]: row for row in rows}["blockwise"]
    assert exact["equal to fairseq greedy"] == 21 and exact["accepted tokens"] > 1
    assert exact["GFLOPs a sentence"]["drafter"] > 0
    assert "| blockwise |" in capsys.readouterr().out
    more = ["--acceptance", "top-k", "--top-beta", 5, "--sweep", "k", "--block-sizes", "2,4"]
    bench_here(corpus, tiny_verifier, *fixed[:-1], "blockwise", *more, "--output", tmp_path / "k")
    rows = json.loads((tmp_path / "k" / "results.json").read_text("utf-8"))["rows"]
    accepted = {row["method"]: row["accepted tokens"] for row in rows}
    assert 1 < accepted["blockwise, k=2"] <= 2
    assert accepted["blockwise, k=4"] >= max(exact["accepted tokens"], accepted["blockwise, k=2"])


@pytest.mark.parametrize(
    "more, words",
    [
        (["--resume"], "the folder --output"),
        (["--sweep", "k"], "add specdec"),
        (["--methods", "greedy,greedy"], "twice"),
        (["--repeats", 0], "at least 1"),
        (["--turn", 0], "at least 1"),
        (["--pause", "-1"], "from 0 on"),
        (["--pause", "nan"], "from 0 on"),
        (["--sweep", "batch", "--batch-size", 4], "--batch-sizes"),
        (["--sweep", "batch", "--batch-sizes", "0,4"], "at least 1"),
        (["--threads", "0"], "at least 1"),
        (["--threads", "1,2"], "add --sweep threads"),
        (["--sweep", "threads", "--peer", "ctranslate2"], "leave it out"),
        (["--edit-ratio", "--batch-size", 2], "leave out --batch-size"),
        (["--examples", 2, "--sweep", "batch"], "--sweep batch and --sweep threads"),
        (["--edit-ratio", "--methods", "specdec"], "add greedy to"),
        (["--examples", 0], "at least 1"),
        (["--examples", 2], "none of these --methods drafts"),
        (["--examples", 2, "--methods", "greedy,specdec beam"], "none of these --methods drafts"),
        (["--sampling", "--methods", "fairseq beam 5"], "'fairseq beam 5' has 5 beams"),
        (["--sampling", "--methods", "greedy,specdec beam"], "'specdec beam' has 5 beams"),
        (["--sampling", "--methods", "specdec++ self"], "--top-beta 5 accepts tokens that were"),
        (["--sampling", "--methods", "nat"], "sampling=True cannot be kept with decoding='nat'"),
        (["--sampling", "--sampling-topk", 5, "--sampling-topp", 0.9], "leave one of them out"),
        (["--sampling", "--sampling-topp", 1.5], "a probability above 0, up to 1"),
        (["--sampling-topk", 5], "--sampling-topk 5 is about samples: add --sampling"),
        (["--temperature", 0.7], "--temperature 0.7 is about samples: add --sampling"),
    ],
)
def test_options_that_make_no_sense(more, words, corpus, tiny_verifier):
    with pytest.raises(PluginError, match=words):
        bench_here(corpus, tiny_verifier, "--methods", "greedy", *more)


def test_an_interrupted_run_is_resumed(corpus, tiny_verifier, tmp_path, monkeypatch):
    begun, bar = [], timing.Progress

    def shown(**given):
        begun.append((given["initial"], given["total"]))
        return bar(**given)

    monkeypatch.setattr(timing, "Progress", shown)
    args = [corpus, tiny_verifier, "--methods", "fairseq beam 1,greedy", "--output", tmp_path]
    bench_here(*args)
    journal = tmp_path / "journal.jsonl"
    lines = journal.read_text("utf-8").splitlines(keepends=True)
    assert len(lines) == 1 + 2 * 21
    journal.write_text("".join(lines[:22])[:-30], "utf-8")  # ten batches, half of the last
    bench_here(*args, "--resume")
    assert begun == [(0, 21), (10, 21)]  # where the progress bars begin
    again = journal.read_text("utf-8").splitlines(keepends=True)
    assert again[:21] == lines[:21] and len(again) == len(lines)
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    assert [row["equal to fairseq greedy"] for row in rows] == [21, 21]
    assert rows[1]["iterations"] == rows[1]["tokens"]
    with pytest.raises(PluginError, match="--max-len-b 20, but now it is 19"):
        bench_here(*args, "--resume", "--max-len-b", 19)
    monkeypatch.setattr(records, "FOLDER", str(Path(__file__).parent))
    with pytest.raises(PluginError, match="the plugin's code checksum"):
        bench_here(*args, "--resume")


@pytest.mark.parametrize(
    "sweep, labels, words",
    [
        (
            ["k", "--block-sizes", "2,4"],
            ["greedy", "specdec, k=2", "specdec, k=4", "specdec++, k=2", "specdec++, k=4"],
            "| specdec, k=2 |",
        ),
        (
            ["beta-tau", "--betas", "1,2", "--tolerances", "0.5,1"],
            ["greedy", "specdec", "specdec++, β=1", "specdec++, β=2, τ=0.5", "specdec++, β=2, τ=1"],
            "| accepted tokens / BLEU | β = 1 | β = 2 |",
        ),
        (
            ["batch", "--batch-sizes", "1,8", "--methods", "fairseq beam 1,greedy,input-guided"],
            ["fairseq beam 1", "greedy", "input-guided"] * 2,
            "| × fairseq beam 1 | batch of 1 | batch of 8 |",
        ),
        (
            ["k", "--block-sizes", "2,4", "--methods", "greedy,input-guided"],
            ["greedy", "input-guided, k=2", "input-guided, k=4"],
            "| input-guided, k=4 |",
        ),
        (
            ["batch", "--batch-sizes", "1,8"],
            ["greedy", "specdec", "specdec++"] * 2,
            "| peak memory, MB | batch of 1 | batch of 8 |",
        ),
    ],
)
def test_sweeps(sweep, labels, words, corpus, tiny_verifier, tiny_drafter, tmp_path, capsys):
    args = ["--drafter-path", tiny_drafter, "--methods", "greedy,specdec,specdec++"]
    args += ["--reference", os.path.join(corpus.raw_dir, "test.es"), "--sentences", 8]
    bench_here(corpus, tiny_verifier, *args, "--sweep", *sweep, "--output", tmp_path)
    rows = rows_of(tmp_path)
    assert [row["method"] for row in rows] == labels
    assert all(row["sentences"] == 8 for row in rows)
    exact = [row for row in rows if not row["method"].startswith("specdec++")]
    key = "equal to fairseq greedy" if rows[0]["method"] == "fairseq beam 1" else "equal to greedy"
    assert all(row[key] == 8 for row in exact)
    assert words in capsys.readouterr().out
    assert (tmp_path / f"sweep-{sweep[0]}.png").stat().st_size > 5000
    assert (tmp_path / f"sweep-{sweep[0]}.svg").exists()


def test_memory_that_the_system_hides(corpus, tiny_verifier, tmp_path, capsys, monkeypatch):
    """Another C library than glibc does not tell what a method keeps: that is not nothing."""
    monkeypatch.setattr("specdec_plugin.lab.bench.memory.in_use", lambda device: None)
    args = ["--methods", "greedy", "--sweep", "batch", "--batch-sizes", "1,8", "--sentences", 8]
    bench_here(corpus, tiny_verifier, *args, "--output", tmp_path)
    assert not any("memory in MB" in row for row in rows_of(tmp_path))
    printed = capsys.readouterr().out
    assert "ms a batch, p50" in printed and "peak memory" not in printed


def test_more_threads(corpus, tiny_verifier, tmp_path, capsys, monkeypatch):
    used = []
    monkeypatch.setattr("torch.set_num_threads", used.append)
    names = ["fairseq beam 1", "greedy", "gs-jacobi"]
    args = [corpus, tiny_verifier, "--methods", ",".join(names), "--sentences", 6]
    args += ["--sweep", "threads", "--threads", "2,1", "--output", tmp_path]
    bench_here(*args)
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    assert [(row["threads"], row["method"]) for row in rows] == [
        (count, name) for count in (1, 2) for name in names
    ]
    assert used == [1, 1, 2] and all(row["equal to fairseq greedy"] == 6 for row in rows)
    for count in (1, 2):
        lines = (tmp_path / f"journal-threads-{count}.jsonl").read_text("utf-8").splitlines()
        assert len(lines) == 1 + 6 * len(names)
    printed = capsys.readouterr().out
    for words in ("| × fairseq beam 1 | 1 thread | 2 threads |", "with 1 and 2 threads"):
        assert words in printed
    assert (tmp_path / "sweep-threads.png").stat().st_size > 5000
    assert (tmp_path / "sweep-threads.svg").exists()
    bench_here(*args, "--resume")
    again = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    for key in ("seconds", "iterations", "GFLOPs a sentence"):
        assert [row.get(key) for row in again] == [row.get(key) for row in rows]


@pytest.mark.parametrize("window", ["block", "sliding", "adaptive"])
def test_jacobi_solvers_with_flags_of_their_own(
    window, corpus, tiny_verifier, tiny_drafter, tmp_path, monkeypatch
):
    built = {}

    def build(task, models, args, eos=None):
        generator = build_generator(task, models, args, eos)
        built[str(task.cfg.decoding)] = task.cfg
        return generator

    monkeypatch.setattr(parallel_decoding, "build_generator", build)
    names = ["greedy", "specdec", "jacobi", "gs-jacobi", "hybrid-jacobi"]
    bench_here(
        *(corpus, tiny_verifier, "--methods", ",".join(names), "--drafter-path", tiny_drafter),
        *("--draft-confidence", 0.1, "--block-size", 4, "--hybrid-length", 5),
        *("--jacobi-init", "source", "--jacobi-window", window, "--jacobi-pool", 100),
        *("--draft-rows", 0, "--sentences", 6, "--output", tmp_path),
    )
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    assert [row["method"] for row in rows] == names
    assert all(row["equal to greedy"] == 6 for row in rows)
    for name in names[2:]:
        cfg = built[name]
        assert (cfg.jacobi_init, cfg.jacobi_pool) == ("source", 100)
        assert cfg.hybrid_length == (5 if name == "hybrid-jacobi" else 0)
        assert cfg.block_size == (0 if name == "jacobi" else 4)
        assert str(cfg.jacobi_window) == ("adaptive" if name == "jacobi" else window)
        adapts = name != "jacobi" and window == "adaptive"
        assert cfg.draft_confidence == (0.1 if adapts else 0)
    assert built["specdec"].draft_confidence == 0.1
    spent = {row["method"]: row["GFLOPs a sentence"] for row in rows}
    assert spent["specdec"]["drafter"] > 0 == spent["gs-jacobi"]["drafter"]
    assert spent["gs-jacobi"]["total"] > spent["greedy"]["total"] > 0
    assert spent["gs-jacobi"]["encoder"] == spent["greedy"]["encoder"]


@pytest.mark.parametrize("fallback", [None, "ngram", "nat"])
def test_copies_of_the_source_with_flags_of_their_own(
    fallback, corpus, tiny_verifier, tiny_drafter, tmp_path, monkeypatch
):
    built = {}

    def build(task, models, args, eos=None):
        generator = build_generator(task, models, args, eos)
        built[str(task.cfg.decoding)] = task.cfg
        return generator

    monkeypatch.setattr(parallel_decoding, "build_generator", build)
    names = ["greedy", "specdec", "input-guided"]
    bench_here(
        *(corpus, tiny_verifier, "--methods", ",".join(names), "--drafter-path", tiny_drafter),
        *("--draft-confidence", 0.1, "--block-size", 3, "--drafter-dtype", "float32"),
        *(["--fallback", fallback] if fallback else []),
        *("--draft-rows", 0, "--sentences", 6, "--output", tmp_path),
    )
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    assert [row["method"] for row in rows] == names
    assert all(row["equal to greedy"] == 6 for row in rows)
    cfg, reads = built["input-guided"], fallback == "nat"
    assert cfg.block_size == 3 and cfg.fallback == fallback
    assert cfg.drafter_path == (tiny_drafter if reads else None)
    assert cfg.draft_confidence == (0.1 if reads else 0)
    assert cfg.drafter_dtype == ("float32" if reads else None)
    assert built["specdec"].drafter_path == tiny_drafter
    assert (rows[2]["GFLOPs a sentence"]["drafter"] > 0) == reads


def test_edit_ratios_and_examples(corpus, tiny_verifier, tiny_drafter, tmp_path, capsys):
    names = ["fairseq beam 5", "fairseq beam 1", "greedy", "input-guided", "specdec", "gs-jacobi"]
    args = [corpus, tiny_verifier, "--drafter-path", tiny_drafter, "--methods", ",".join(names)]
    args += ["--post-process", "none", "--draft-rows", 0, "--output", tmp_path]
    bench_here(*args)
    plain = json.loads((tmp_path / "results.json").read_text("utf-8"))
    assert "by edit ratio" not in plain and not (tmp_path / "edit-ratio.png").exists()
    capsys.readouterr()
    bench_here(*args, "--edit-ratio", "--examples", 3, "--resume")
    printed = capsys.readouterr().out
    results = json.loads((tmp_path / "results.json").read_text("utf-8"))
    for key in ("seconds", "iterations"):  # nothing was timed again
        assert [row.get(key) for row in results["rows"]] == [row.get(key) for row in plain["rows"]]
    by_ratio = results["by edit ratio"]
    assert sum(row["sentences"] for row in by_ratio) == 21 * len(names)
    assert {row["method"] for row in by_ratio} == {*names}
    assert all(row["median speed-up over fairseq beam 5"] > 0 for row in by_ratio)
    shown = results["examples"]
    assert [row["method"] for row in shown] == [name for name in names[3:] for _ in range(3)]
    greedy = {row["sentence"]: whole(row) for row in shown if row["method"] == "specdec"}
    for row in shown:
        assert row["iterations"] == len(row["output"]) > 0
        assert row["source"] == corpus.lines("test", "en")[row["sentence"]]
        assert whole(row) == greedy[row["sentence"]]
    assert any(part["drafted"] for row in shown for part in row["output"])
    text = (tmp_path / "results.md").read_text("utf-8")
    for words in ("| edit ratio | method |", "output of gs-jacobi |", "[<b>", "⏎]"):
        assert words in text and words in printed
    assert (tmp_path / "edit-ratio.png").stat().st_size > 5000
    assert (tmp_path / "edit-ratio.svg").exists()


def whole(row):
    """The output that an example tells piece by piece."""
    return "".join(part["drafted"] + part["own"] for part in row["output"])


def test_ctranslate2_beside_us(corpus, tiny_verifier, tmp_path):
    pytest.importorskip("ctranslate2")
    args = ["--methods", "fairseq beam 1,greedy", "--batch-size", 4, "--peer", "ctranslate2"]
    bench_here(corpus, tiny_verifier, *args, "--output", tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text("utf-8"))["rows"]
    assert [row["method"] for row in rows] == ["fairseq beam 1", "greedy", "ctranslate2"]
    assert rows[2]["equal to fairseq greedy"] == 21
    args[1] = "fairseq beam 5,fairseq beam 1,beam"
    bench_here(corpus, tiny_verifier, *args, "--output", tmp_path)
    *_, greedy, beams = rows_of(tmp_path)
    assert (greedy["method"], beams["method"]) == ("ctranslate2", "ctranslate2 beam 5")
    assert greedy["equal to fairseq greedy"] == 21 and beams["equal to fairseq beam 5"] > 15


def test_ctranslate2_in_two_types(corpus, tiny_verifier, tmp_path):
    """Eight bits give other scores, so that nothing has to be equal."""
    pytest.importorskip("ctranslate2")
    peers = ["--peer", "ctranslate2-int8", "--peer", "ctranslate2"]
    args = ["--methods", "fairseq beam 1", "--batch-size", 4, *peers, "--output", tmp_path]
    bench_here(corpus, tiny_verifier, *args)
    _, small, exact = rows_of(tmp_path)
    assert (small["method"], exact["method"]) == ("ctranslate2-int8", "ctranslate2")
    assert "equal to fairseq greedy" not in small and exact["equal to fairseq greedy"] == 21


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
        (["--methods", "nat"], "needs a drafter"),
        (["--methods", "greedy", "--reference", short], "has 1 lines"),
        (["--methods", "greedy", "--gen-subset", "nowhere"], "nowhere"),
        (["--methods", "greedy", "-s", "de"], "dict.de.txt"),
        (["--methods", "greedy", "--reference", tmp_path / "none"], "File not found"),
    ):
        done = run_cli(bench(corpus, tiny_verifier, *more), check=False)
        assert done.returncode != 0
        assert "Traceback" not in done.stderr, done.stderr
        assert words in done.stderr.strip().splitlines()[-1]
