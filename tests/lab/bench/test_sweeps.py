"""What a sweep times, and its tables."""

import math

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.command_line import build_parser, tokenizer_of
from specdec_plugin.lab.bench.sweeps import (
    Conditions,
    Direction,
    batch_tables,
    conditions,
    direction_table,
    directions,
    grid,
    grid_tables,
    guess_table,
    settings,
    swept_rows,
    thread_tables,
)

NAMES = ["fairseq beam 5", "greedy", "specdec", "specdec++"]
FLAGS = {"block_size": 6, "top_beta": 5, "tolerance": 3.0}


def test_without_a_sweep_each_method_comes_once():
    assert [each.label for each in settings(NAMES, FLAGS)] == NAMES
    assert all(each.flags == FLAGS for each in settings(NAMES, FLAGS, "batch"))


def test_block_sizes_concern_what_drafts():
    found = settings(NAMES, FLAGS, "k", block_sizes=[2, 4])
    labels = ["fairseq beam 5", "greedy", "specdec, k=2", "specdec, k=4"]
    assert [each.label for each in found] == [*labels, "specdec++, k=2", "specdec++, k=4"]
    assert found[3].flags == {**FLAGS, "block_size": 4} and found[3].swept == {"block_size": 4}
    assert found[3].method == "specdec" and found[0].swept == {}


def test_beta_and_tau_concern_specdec_plus_plus():
    found = settings(NAMES, FLAGS, "beta-tau", betas=[1, 3], tolerances=[1.0, 2.5])
    labels = ["specdec++, β=1", "specdec++, β=3, τ=1", "specdec++, β=3, τ=2.5"]
    assert [each.label for each in found] == [*NAMES[:3], *labels]
    assert found[3].flags["tolerance"] == math.inf  # the only token accepted is the best


def test_a_sweep_that_changes_nothing_is_refused():
    with pytest.raises(PluginError, match=r"add specdec\+\+"):
        settings(["specdec"], FLAGS, "beta-tau", betas=[3], tolerances=[1])
    with pytest.raises(PluginError, match="add specdec to them"):
        settings(["greedy"], FLAGS, "k", block_sizes=[4])


def test_guesses_concern_solvers_of_blocks():
    flags = {**FLAGS, "jacobi_pool": 99}
    found = settings(["greedy", "jacobi", "gs-jacobi"], flags, "jacobi", block_sizes=[3, 5])
    assert [each.label for each in found[:4]] == [
        "greedy", "jacobi", "gs-jacobi, block, pad, k=3", "gs-jacobi, block, pad, k=5",
    ]  # fmt: skip
    assert found[4].label == "gs-jacobi, block, pad, pool, k=3"
    assert found[4].swept == {
        "jacobi_window": "block", "jacobi_init": "pad", "jacobi_pool": 99, "block_size": 3,
    }  # fmt: skip
    assert len(found) == 2 + 3 * 4 * 2 * 2
    with pytest.raises(PluginError, match="add gs-jacobi"):
        settings(["jacobi"], flags, "jacobi", block_sizes=[3])


def guessed(size, pool, accepted, **more):
    swept = {"jacobi_window": "block", "jacobi_init": "pad", "jacobi_pool": pool}
    row = {"base method": "gs-jacobi", "block_size": size, "accepted tokens": accepted}
    return {**row, **swept, **more}


def test_a_line_for_each_way_to_guess():
    speed = {"median speed-up over greedy": 1.25}
    rows = [{"base method": "greedy"}, guessed(3, 0, 1.1), guessed(5, 0, 1.2), guessed(3, 9, 1.3)]
    text = guess_table([*rows, guessed(5, 9, 1.4, **speed)])
    assert text.splitlines() == [
        "| method | window | initial guess | pool | b = 3 | b = 5 |",
        "| :--- | :--- | :--- | :--- | ---: | ---: |",
        "| gs-jacobi | block | pad | no | 1.10 | 1.20 |",
        "| gs-jacobi | block | pad | yes | 1.30 | 1.40 / 1.25 |",
        "",
        "(accepted tokens / × greedy)",
    ]


def cell(beta, tau, accepted, bleu):
    row = {"method": f"{beta} {tau}", "base method": "specdec++", "top_beta": beta}
    return {**row, "tolerance": tau, "accepted tokens": accepted, "bleu": bleu}


GRID = [
    {"method": "greedy", "bleu": 40.0},
    cell(3, 2.0, 4.0, 39.0),
    cell(1, math.inf, 3.0, 40.0),
    cell(3, 1.0, 3.5, 41.0),
]


def test_the_grid_repeats_what_needs_no_tolerance():
    assert grid(GRID, "bleu") == {1: {1.0: 40.0, 2.0: 40.0}, 3: {1.0: 41.0, 2.0: 39.0}}
    assert grid_tables(GRID).splitlines()[2:] == [
        "| τ = 1 | 3.00 / 40.0 | 3.50 / 41.0 |",
        "| τ = 2 | 3.00 / 40.0 | 4.00 / 39.0 |",
    ]
    without = [{key: row[key] for key in row if key != "bleu"} for row in GRID]
    assert grid_tables(without).splitlines()[2] == "| τ = 1 | 3.00 | 3.50 |"
    assert list(grid(GRID[2:3], "bleu")[1]) == [math.inf]


def test_each_method_has_a_grid_of_its_own():
    other = {**cell(3, 1.0, 2.5, 30.0), "base method": "specdec++ clustered"}
    assert grid_tables([*GRID, other]).splitlines() == [
        "| specdec++: accepted tokens / BLEU | β = 1 | β = 3 |",
        "| :--- | ---: | ---: |",
        "| τ = 1 | 3.00 / 40.0 | 3.50 / 41.0 |",
        "| τ = 2 | 3.00 / 40.0 | 4.00 / 39.0 |",
        "",
        "| specdec++ clustered: accepted tokens / BLEU | β = 3 |",
        "| :--- | ---: |",
        "| τ = 1 | 2.50 / 30.0 |",
    ]


def test_rows_of_a_method_are_in_the_order_of_what_is_swept():
    rows = [
        {"base method": "specdec", "block_size": 4},
        {"base method": "greedy"},
        {"base method": "specdec", "block_size": 2},
    ]
    assert swept_rows(rows, "block_size") == {"specdec": [rows[2], rows[0]]}


def test_tables_by_batch_size():
    rows = [
        {"method": name, "batch size": size, "p50_ms": 10.0 * size, "seconds": 2.0,
         "sentences": 8, "median speed-up over greedy": 1.5, "memory in MB": {"peak": 30.0 + size}}
        for size in (1, 8)
        for name in ("greedy", "specdec")
    ]  # fmt: skip
    text = batch_tables(rows)
    assert "| specdec | 10.0 | 80.0 |" in text  # ms a batch
    assert "| specdec | 250.0 | 250.0 |" in text  # ms a sentence
    assert "| specdec | 1.50 | 1.50 |" in text
    assert "| specdec | 31.0 | 38.0 |" in text  # MB


def parsed(*more):
    return build_parser().parse_args(["data", "-s", "en", "-t", "es", "--path", "a.pt", *more])


def conditions_of(options):
    return conditions(options, Direction("en", "es"))


def test_conditions_of_a_run(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert conditions_of(parsed()) == [Conditions(1, 2, "journal.jsonl")]
    assert conditions_of(parsed("--batch-size", "4", "--threads", "1")) == [Conditions(4, 1)]
    assert conditions_of(parsed("--sweep", "batch", "--batch-sizes", "8,1", "--threads", "3")) == [
        Conditions(1, 3, "journal-1.jsonl"),
        Conditions(8, 3, "journal-8.jsonl"),
    ]
    assert conditions_of(parsed("--sweep", "threads", "--threads", "4,1", "--batch-size", "2")) == [
        Conditions(2, 1, "journal-threads-1.jsonl"),
        Conditions(2, 4, "journal-threads-4.jsonl"),
    ]
    assert conditions_of(parsed("--sweep", "directions")) == [
        Conditions(1, 2, "journal-en-es.jsonl")
    ]


def swept(*more):
    return build_parser().parse_args(["data", "--path", "a.pt", "--sweep", "directions", *more])


def test_directions_of_a_run():
    assert directions(parsed()) == [("en", "es")]
    pairs = [("en", "es"), ("es", "en")]
    assert directions(swept("--directions", "en-es,es-en")) == pairs
    assert directions(swept("--lang-pairs", "en-es,es-en")) == pairs
    assert directions(swept("--lang-pairs", "en-es,es-en", "--directions", "es-en")) == pairs[1:]
    assert Direction("en", "es").named("{source}-{target}/test.{target}") == "en-es/test.es"


@pytest.mark.parametrize(
    "options, words",
    [
        (parsed("--directions", "en-es"), "--directions en-es would have no effect: add --sweep"),
        (swept(), "add --directions such as"),
        (swept("--directions", "en-es,fr"), "add --directions such as"),
        (swept("--directions", "en-es", "-s", "en"), "leave -s and -t out"),
        (swept("--directions", "en-es,es-en,en-es"), "en-es,es-en,en-es names a direction twice"),
        (swept("--lang-pairs", "en-es,en-es"), "en-es,en-es names a direction twice; name each on"),
    ],
)
def test_directions_that_are_refused(options, words):
    with pytest.raises(PluginError, match=words):
        directions(options)


def test_tokenizers_by_language():
    names = [tokenizer_of("13a,zh=zh,ja=char", language) for language in ("es", "zh", "ja", None)]
    assert names == ["13a", "zh", "char", "13a"]
    assert tokenizer_of("zh", "es") == "zh" and tokenizer_of("zh=zh", "es") == "13a"
    with pytest.raises(PluginError, match=r"has no tokenizer nought\."):
        tokenizer_of("13a,zh=nought", "es")


def test_table_by_direction():
    rows = [
        {"method": name, "direction": pair, "sentences": 4, "bleu": 30.0, **more}
        for pair in ("es-en", "en-es")
        for name, more in (
            ("fairseq beam 1", {"median speed-up over fairseq beam 1": 1.0}),
            ("jacobi", {"median speed-up over fairseq beam 1": 2.5, "iterations": 10}),
        )
    ]
    assert direction_table(rows).splitlines() == [
        "| × fairseq beam 1 / iterations a sentence / BLEU | es-en | en-es |",
        "| :--- | ---: | ---: |",
        "| fairseq beam 1 | 1.00 / – / 30.0 | 1.00 / – / 30.0 |",
        "| jacobi | 2.50 / 2.5 / 30.0 | 2.50 / 2.5 / 30.0 |",
    ]


def test_tables_by_threads():
    rows = [
        {"method": name, "threads": count, "p50_ms": 12.0 / count, "seconds": 2.0 / count,
         "sentences": 8, "median speed-up over greedy": 1.0 + count}
        for count in (4, 1)
        for name in ("greedy", "gs-jacobi")
    ]  # fmt: skip
    text = thread_tables(rows)
    assert "| ms a batch, p50 | 1 thread | 4 threads |" in text
    assert "| gs-jacobi | 12.0 | 3.0 |" in text
    assert "| gs-jacobi | 250.0 | 62.5 |" in text  # ms a sentence
    assert "| gs-jacobi | 2.00 | 5.00 |" in text and "fairseq" not in text
