"""Plots are drawn, as PNG and SVG, with what they show in their text."""

import math
import os

import pytest

from specdec_plugin.lab.bench import plots


def row(method, base=None, speed_up=2.0, **more):
    return {"method": method, "base method": base or method, "accepted tokens": 3.0, "bleu": 40.0,
            "median speed-up over fairseq beam 5": speed_up, **more}  # fmt: skip


def check(paths, *words):
    assert [os.path.splitext(path)[1] for path in paths] == [".png", ".svg"]
    with open(paths[0], "rb") as file:
        png = file.read()
    assert png.startswith(b"\x89PNG") and len(png) > 5000
    with open(paths[1], encoding="utf-8") as file:
        svg = file.read()
    for word in words:
        assert word in svg


def test_distribution(tmp_path):
    seconds = {"fairseq beam 5": [4.0, 6.0, 9.0], "greedy": [2.0, 2.0, 3.0], "specdec": [1.0] * 3}
    paths = plots.plot_distribution(seconds, str(tmp_path))
    check(
        paths,
        "greedy: median 3.00×",
        "specdec: median 6.00×",
        "over fairseq beam 5",
        "sentences, %",
    )


def test_no_distribution_without_a_baseline(tmp_path):
    assert plots.plot_distribution({"specdec": [1.0], "nat": [1.0]}, str(tmp_path)) == []
    assert plots.plot_distribution({"greedy": [1.0]}, str(tmp_path)) == []


@pytest.mark.parametrize("ratios", [[0.5, 0.6], [1.0] * 5, [3.0, 4.0, 1000.0], [5e4] * 3])
def test_bins_are_few_and_of_one_width(ratios):
    edges = plots._edges(ratios)
    assert len(edges) >= 2 and edges[0] == 0


def test_edit_ratios(tmp_path):
    ratios = [0.0, 0.0, 0.1, 0.4]
    seconds = {"fairseq beam 5": [9.0, 8.0, 7.0, 9.0], "greedy": [3.0] * 4}
    seconds["input-guided"] = [1.0, 1.0, 2.0, 3.0]
    paths = plots.plot_edit_ratios(ratios, seconds, str(tmp_path))
    check(paths, "edit ratio", "× fairseq beam 5", "× greedy", "input-guided")
    assert paths[0].endswith("edit-ratio.png")
    del seconds["fairseq beam 5"], seconds["greedy"]
    assert plots.plot_edit_ratios(ratios, seconds, str(tmp_path)) == []
    seconds["fairseq beam 1"] = [4.0] * 4
    check(plots.plot_edit_ratios(ratios, seconds, str(tmp_path)), "× fairseq beam 1")


def test_block_sizes(tmp_path):
    rows = [row("greedy"), row("fairseq beam 5")]
    rows += [row(f"specdec, k={k}", "specdec", k / 2, block_size=k) for k in (2, 4, 6)]
    check(plots.plot_block_sizes(rows, str(tmp_path)), "block size k", "sacreBLEU", "greedy")


def test_grid(tmp_path):
    rows = [
        row(f"{beta} {tau}", "specdec++", beta + tau, top_beta=beta, tolerance=tau)
        for beta in (3, 5)
        for tau in (1.0, 2.0)
    ]
    rows.append(row("1", "specdec++", top_beta=1, tolerance=math.inf))
    check(plots.plot_grid(rows, str(tmp_path)), "top-β", "tolerance τ", "7.00×")
    other = row("other", "specdec++ clustered", 1.25, top_beta=3, tolerance=1.0)
    check(plots.plot_grid([*rows, other], str(tmp_path)), "specdec++ clustered", "1.25×", "7.00×")


def test_batch_sizes(tmp_path):
    rows = [
        row(name, speed_up=size, **{"batch size": size, "seconds": 1.0 / size, "sentences": 8},
            **{"memory in MB": {"peak": 30.0 + size}, "median speed-up over greedy": 1.5})
        for size in (1, 8, 32)
        for name in ("fairseq beam 5", "specdec")
    ]  # fmt: skip
    paths = plots.plot_batch_sizes(rows, str(tmp_path))
    check(paths, "sentences a batch", "peak memory, MB", "× fairseq beam 5, median")
    check(paths, "× greedy, median")


def test_threads(tmp_path):
    rows = [
        row(name, **{"threads": count, "seconds": 1.0 / count, "sentences": 8,
                     "median speed-up over greedy": 1.0 * count})
        for count in (1, 2, 4)
        for name in ("greedy", "gs-jacobi")
    ]  # fmt: skip
    paths = plots.plot_threads(rows, str(tmp_path))
    check(paths, "ms a sentence, mean", "× greedy, median", "gs-jacobi", "threads")
    assert paths[0].endswith("sweep-threads.png")
    rows = [{**each, "median speed-up over fairseq beam 1": 2.0} for each in rows]
    check(plots.plot_threads(rows, str(tmp_path)), "× fairseq beam 1, median")


def test_many_lines_look_different():
    looks = [tuple(plots._look(place).values()) for place in range(30)]
    assert len({*looks}) == 30
    assert len({*(look[0] for look in looks[:7])}) == len({*(look[1] for look in looks[:7])}) == 7
