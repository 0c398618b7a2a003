"""Patches of photographs: what is held out, what is halved, what is scored and drawn."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, List

import collect_cells
import draw_patches
import numpy as np
import photo_patches
import pixels
import pytest
import score_patches
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.lib.stride_tricks import sliding_window_view
from PIL import Image

from specdec_plugin.errors import PluginError

SPLITS = ("train", "valid", "test")


@pytest.fixture()
def photo(tmp_path: Path) -> Path:
    """A coloured picture of noise, in which no two patches are equal."""
    path = tmp_path / "noise.png"
    noise = np.random.default_rng(1).integers(256, size=(230, 330, 3), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    return path


def run(*args: Any) -> None:
    photo_patches.main([*map(str, args)])


def patches(folder: Path, name: str) -> List[Any]:
    return pixels.read_patches(str(folder / name))


def test_pairs(photo: Path, tmp_path: Path) -> None:
    run("--output", tmp_path, "--photos", photo, "--side", 8, "--stride", 5)
    for split in SPLITS:
        low, high = patches(tmp_path, f"{split}.low"), patches(tmp_path, f"{split}.high")
        assert len(low) == len(high) > 20
        for small, large in zip(low, high, strict=True):
            assert small.shape == (4, 4) and large.shape == (8, 8)
            for y in range(4):
                for x in range(4):
                    mean = large[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].mean()
                    assert small[y, x] == math.floor(mean + 0.5)
    levels = (tmp_path / "dict.txt").read_text("utf-8").splitlines()
    assert levels == [f"{level} 1" for level in range(256)]


@pytest.mark.parametrize("factor", [2, 4])
def test_coloured_pairs(photo: Path, tmp_path: Path, factor: int) -> None:
    options = ("--side", 8, "--stride", 5, "--factor", factor, "--colour")
    run("--output", tmp_path, "--photos", photo, *options)
    windows = sliding_window_view(np.asarray(Image.open(photo)), (8, 8, 3))[:, :, 0]
    upright = {window.tobytes() for row in windows for window in row}
    for split in SPLITS:
        low, high = patches(tmp_path, f"{split}.low"), patches(tmp_path, f"{split}.high")
        assert len(low) == len(high) > 20
        for small, large in zip(low, high, strict=True):
            assert small.shape == (8 // factor, 8 // factor, 3) and large.shape == (8, 8, 3)
            assert split == "train" or large.astype(np.uint8).tobytes() in upright
            for (y, x, channel), level in np.ndenumerate(small):
                block = large[y * factor : (y + 1) * factor, x * factor : (x + 1) * factor, channel]
                assert level == math.floor(block.mean() + 0.5)


def test_no_training_patch_shows_a_pixel_that_is_held_out(photo: Path, tmp_path: Path) -> None:
    run("--output", tmp_path, "--photos", photo, "--side", 8, "--stride", 1)
    grey = np.asarray(Image.open(photo).convert("L")).astype(int)

    places = {}
    for y in range(grey.shape[0]):
        for x in range(grey.shape[1] - 7):
            places[grey[y, x : x + 8].tobytes()] = (y, x)
    held_out = {split: np.zeros(grey.shape, dtype=bool) for split in ("valid", "test")}
    for split, shown in held_out.items():
        where = [places[patch[0].tobytes()] for patch in patches(tmp_path, f"{split}.high")]
        for y, x in where:
            shown[y : y + 8, x : x + 8] = True
        assert shown.sum() == 64 * len(where)  # side by side
    assert not (held_out["valid"] & held_out["test"]).any()
    seen = np.zeros(grey.shape, dtype=bool)
    for patch in patches(tmp_path, "train.high"):
        ways = [np.rot90(flip, turn) for flip in (patch, patch.T) for turn in range(4)]
        rows = [way for way in ways if way[0].tobytes() in places]
        (upright,) = [way for way in rows if _at(grey, places[way[0].tobytes()], way)]
        y, x = places[upright[0].tobytes()]
        seen[y : y + 8, x : x + 8] = True
    assert not (seen & (held_out["valid"] | held_out["test"])).any()
    assert seen.sum() > 0.6 * grey.size


def _at(grey: Any, place: Any, patch: Any) -> bool:
    y, x = place
    return np.array_equal(grey[y : y + 8, x : x + 8], patch)


def test_blocks_in_random_order(photo: Path, tmp_path: Path) -> None:
    """Every second patch has the blocks of the one before it, each with its own source pixel."""
    run("--output", tmp_path, "--photos", photo, "--side", 8, "--stride", 9)
    plain = [patches(tmp_path, f"train.{side}") for side in ("low", "high")]
    mixed = [patches(tmp_path, f"mixed.{side}") for side in ("low", "high")]
    assert len(mixed[0]) == len(mixed[1]) == 2 * len(plain[0])
    moved = 0
    for number, (low, high) in enumerate(zip(*plain, strict=True)):
        assert np.array_equal(mixed[0][2 * number], low)
        assert np.array_equal(mixed[1][2 * number], high)
        other = _blocks(mixed[0][2 * number + 1], mixed[1][2 * number + 1])
        assert sorted(other) == sorted(_blocks(low, high))
        moved += other != _blocks(low, high)
    assert moved > 0.9 * len(plain[0])


def _blocks(low: Any, high: Any) -> List[Any]:
    return [
        (int(low[y, x]), *map(int, high[2 * y : 2 * y + 2, 2 * x : 2 * x + 2].reshape(-1)))
        for y in range(len(low))
        for x in range(len(low))
    ]


def test_the_same_for_the_same_seed(photo: Path, tmp_path: Path) -> None:
    texts = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run("--output", tmp_path / name, "--photos", photo, "--seed", seed, "--stride", 9)
        texts.append((tmp_path / name / "train.high").read_text("utf-8"))
    assert texts[0] == texts[1] != texts[2]
    assert sorted(map(len, texts[0].split())) == sorted(map(len, texts[2].split()))


def test_the_photographs_of_scikit_learn(tmp_path: Path) -> None:
    run("--output", tmp_path, "--stride", 20)
    sizes = {split: len(patches(tmp_path, f"{split}.high")) for split in SPLITS}
    assert sizes["valid"] == 224 and sizes["test"] == 192 and sizes["train"] > 500


@pytest.mark.parametrize(
    "name, content, told",
    [
        ("none.png", None, "Photograph not found"),
        ("text.png", b"no picture", "is no picture that can be read"),
        ("small.png", (100, 60), "too small to cut patches for"),
        ("tiny.png", (100, 15), r"tiny\.png is smaller than --side 16: leave it out"),
    ],
)
def test_photographs_that_will_not_do(name: str, content: Any, told: str, tmp_path: Path) -> None:
    path = tmp_path / name
    if isinstance(content, bytes):
        path.write_bytes(content)
    elif content is not None:
        Image.new("L", content).save(path)
    with pytest.raises(PluginError, match=told):
        run("--output", tmp_path / "out", "--photos", path)
    assert not (tmp_path / "out" / "dict.txt").exists()


@pytest.mark.parametrize(
    "option",
    [
        ("--side", 7),
        ("--side", 66),
        ("--side", 0),
        ("--stride", 0),
        ("--factor", 1),
        ("--side", 16, "--factor", 3),
    ],
)
def test_sizes_that_will_not_do(option: Any, tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        run("--output", tmp_path, *option)


@given(arrays(np.uint8, (4, 4)), st.integers(0, 7))
def test_turned(patch: Any, way: int) -> None:
    """The eight ways are the eight of a square, each of which keeps the neighbours."""
    ways = {photo_patches.turned(patch, each).tobytes() for each in range(8)}
    naive = {
        np.ascontiguousarray(np.rot90(side, turn)).tobytes()
        for side in (patch, np.fliplr(patch))
        for turn in range(4)
    }
    assert ways == naive


@settings(max_examples=30)
@given(st.integers(1, 5), st.integers(1, 4), st.data())
def test_scores(side: int, count: int, data: Any) -> None:
    truth, said = (
        data.draw(arrays(np.int64, (count, side, side), elements=st.integers(0, 255)))
        for _ in range(2)
    )
    found = score_patches.scores(list(truth), list(said))
    apart = [abs(int(a) - int(b)) for a, b in zip(truth.reshape(-1), said.reshape(-1), strict=True)]
    assert found["MAE"] == pytest.approx(sum(apart) / len(apart))
    square = sum(each**2 for each in apart) / len(apart)
    right = math.inf if square == 0 else 20 * math.log10(255 / math.sqrt(square))
    assert found["PSNR"] == pytest.approx(right)


def test_score_and_draw(photo: Path, tmp_path: Path, capsys: Any) -> None:
    run("--output", tmp_path, "--photos", photo, "--stride", 9)
    low, high = str(tmp_path / "test.low"), str(tmp_path / "test.high")
    capsys.readouterr()
    score_patches.main(["--truth", high, "--low", low, high])
    own, bicubic = capsys.readouterr().out.splitlines()
    assert own == f"{high} MAE 0.000 PSNR inf"
    assert re.fullmatch(r"bicubic MAE \d+\.\d+ PSNR \d+\.\d+", bicubic)
    picture = tmp_path / "folder" / "grid.png"
    draw_patches.main(["--output", str(picture), f"k=8={low}", f"truth={high}", "--columns", "3"])
    assert Image.open(picture).size[0] > Image.open(picture).size[1] > 100


def test_score_and_draw_colours(photo: Path, tmp_path: Path, capsys: Any) -> None:
    run("--output", tmp_path, "--photos", photo, "--stride", 9, "--colour", "--factor", 4)
    low, high = str(tmp_path / "test.low"), str(tmp_path / "test.high")
    capsys.readouterr()
    score_patches.main(["--truth", high, "--low", low, high])
    own, bicubic = capsys.readouterr().out.splitlines()
    assert own == f"{high} MAE 0.000 PSNR inf" and bicubic.startswith("bicubic MAE ")
    picture = tmp_path / "grid.png"
    draw_patches.main(["--output", str(picture), f"low={low}", f"truth={high}"])
    drawn = np.asarray(Image.open(picture).convert("RGB")).astype(int)
    assert (drawn.max(2) - drawn.min(2)).max() > 50


@given(arrays(np.uint8, (6, 6, 3)), st.permutations(range(9)))
def test_scattered(patch: Any, order: Any) -> None:
    moved = photo_patches.scattered(patch, 2, np.array(order))
    for to, source in enumerate(order):
        there, here = (divmod(each, 3) for each in (to, source))
        blocks = [
            each[2 * y : 2 * y + 2, 2 * x : 2 * x + 2]
            for each, (y, x) in ((moved, there), (patch, here))
        ]
        assert np.array_equal(*blocks)


def test_drawing_says_nothing_of_fonts(tmp_path: Path) -> None:
    """In a process of its own, whose loggers are as fairseq leaves them."""
    patch = tmp_path / "one"
    patch.write_text("7 8 9 10\n", "utf-8")
    program = Path(draw_patches.__file__)
    done = subprocess.run(
        [sys.executable, program, "--output", tmp_path / "a.png", f"one={patch}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "findfont" not in done.stderr


def test_the_patches_that_are_drawn() -> None:
    plain, rich = np.zeros((2, 2)), np.array([[0, 9], [9, 0]])
    assert draw_patches.chosen([plain, rich, plain, plain, plain, rich], 2) == [1, 5]
    assert draw_patches.chosen([plain], 9) == [0]


@pytest.mark.parametrize(
    "line, told", [("1 2 3 4 5", "5 words, 5 of"), ("", "0 words"), ("1 2 3 256", "4 words, 3 of")]
)
def test_lines_that_are_no_patches(line: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "patches"
    path.write_text(f"1 2 3 4\n{line}\n", "utf-8")
    with pytest.raises(PluginError, match=f"Line 2 of .*{told}"):
        pixels.read_patches(str(path))


def test_cells_of_the_table(tmp_path: Path) -> None:
    truth, low = tmp_path / "truth", tmp_path / "low"
    truth.write_text("8 8 8 8\n9 9 9 9\n", "utf-8")
    low.write_text("8\n9\n", "utf-8")
    (tmp_path / "k2.hyp").write_text("8 8 8 12\n9 9 9 9\n", "utf-8")
    (tmp_path / "k2.log").write_text("SpecDec: 4 iterations: 1.75 accepted tokens each\n", "utf-8")
    fixed = [tmp_path / "cells.json", "--truth", truth, "--low", low, "--command", "run.sh"]

    def collect(cell: str) -> List[Any]:
        collect_cells.main([*map(str, fixed), cell])
        return list(json.loads((tmp_path / "cells.json").read_text("utf-8"))["rows"])

    regular, bicubic = collect(f"k=2;setting=regular|{tmp_path}/k2")
    assert regular == {
        "k": 2, "setting": "regular", "accepted tokens": 1.75, "error": 0.5, "patches": 2,
    }  # fmt: skip
    assert bicubic == {"method": "bicubic", "error": 0.0, "patches": 2}
    with pytest.raises(PluginError, match="'k' is not NAME=VALUE"):
        collect(f"k|{tmp_path}/k2")
    (tmp_path / "k2.log").write_text("killed\n", "utf-8")
    with pytest.raises(PluginError, match="tells no accepted tokens"):
        collect(f"k=2|{tmp_path}/k2")
    (tmp_path / "k2.log").unlink()
    with pytest.raises(PluginError, match="tells no accepted tokens"):
        collect(f"k=2|{tmp_path}/k2")
    with pytest.raises(PluginError, match="'k=2' is not LABELS"):
        collect("k=2")
    (tmp_path / "k2.hyp").write_text("8 8 8 8\n", "utf-8")
    with pytest.raises(PluginError, match="do not belong together"):
        collect(f"k=2|{tmp_path}/k2")


def test_files_of_different_lengths(tmp_path: Path) -> None:
    for name, lines in (("one", 1), ("two", 2), ("none", 0)):
        (tmp_path / name).write_text("7\n" * lines, "utf-8")
    one, two, none = (str(tmp_path / name) for name in ("one", "two", "none"))
    with pytest.raises(PluginError, match="do not belong together"):
        score_patches.main(["--truth", one, two])
    with pytest.raises(PluginError, match="do not belong together"):
        draw_patches.main(["--output", str(tmp_path / "a.png"), f"a={one}", f"b={two}"])
    with pytest.raises(PluginError, match="holds no patches"):
        draw_patches.main(["--output", str(tmp_path / "a.png"), f"a={none}"])
    with pytest.raises(PluginError, match="none holds no patches"):
        score_patches.main(["--truth", none, none])
    for wrong in (["a"], [f"={one}"], [f"a={one}", "--columns", "0"]):
        with pytest.raises(SystemExit):
            draw_patches.main(["--output", str(tmp_path / "a.png"), *wrong])


def test_patches_of_different_sizes(tmp_path: Path) -> None:
    for name, text in (("truth", "8 8 8 8"), ("small", "8"), ("coloured", "8 8 8")):
        (tmp_path / name).write_text(f"{text}\n", "utf-8")
    (tmp_path / "mixed").write_text("8 8 8 8\n8\n", "utf-8")
    truth, small, coloured, mixed = (
        str(tmp_path / name) for name in ("truth", "small", "coloured", "mixed")
    )
    for files, told in (
        ([truth, small], "Line 1 of .*small has 1 levels, and line 1 of .*truth has 4"),
        ([mixed, mixed], "Line 2 of .*mixed has 1 levels"),
        ([truth, "--low", coloured], "Line 1 of bicubic has 12 levels"),
    ):
        with pytest.raises(PluginError, match=told):
            score_patches.main(["--truth", *files])
    (tmp_path / "k2.hyp").write_text("8\n", "utf-8")
    fixed = [tmp_path / "cells.json", "--truth", truth, "--low", small, "--command", "run.sh"]
    with pytest.raises(PluginError, match=r"Line 1 of .*k2\.hyp has 1 levels"):
        collect_cells.main([*map(str, fixed), f"k=2|{tmp_path}/k2"])
