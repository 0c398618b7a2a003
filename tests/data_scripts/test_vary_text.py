"""data_scripts/vary_text.py: other words between the same neighbours, reproducibly."""

import gzip
import random
from pathlib import Path

import pytest
import vary_text
from hypothesis import given
from hypothesis import strategies as st

from specdec_plugin.errors import PluginError

LINES = ["the file is closed", "the socket is open", "a file was closed", "", "the"]


def run(text: Path, output: Path, *options: str) -> list[str]:
    vary_text.main([str(text), "--output", str(output), *options])
    return output.read_text("utf-8").split("\n")[:-1]


@given(st.lists(st.lists(st.sampled_from("abcde"), max_size=6), min_size=1), st.integers())
def test_neighbours_are_neighbours_in_the_text(words: list[list[str]], seed: int) -> None:
    """Also at both edges of a line. No word is lost, and none is added."""
    lines = [" ".join(each) for each in words]
    known = {pair for each in words for pair in zip(["", *each], [*each, ""], strict=True)}
    variants = vary_text.Variants(lines, 1.0)
    for line, given_words in zip(lines, words, strict=True):
        varied = variants.of(line, random.Random(seed)).split()
        assert len(varied) == len(given_words)
        assert known >= {*zip(["", *varied], [*varied, ""], strict=True)}


def test_a_line_for_each_line_and_copy(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "train.en.gz", "wt", encoding="utf-8") as out:
        out.write("".join(line + "\n" for line in LINES))
    found = run(tmp_path / "train.en", tmp_path / "out", "--copies", "400", "--share", "0.5")
    assert len(found) == 400 * len(LINES)
    assert {line for line in found if line not in LINES} == {
        "the socket is closed", "the file is open", "the file was closed", "a file is closed",
        "a file is open",
    }  # fmt: skip
    assert {*found[3 :: len(LINES)]} == {""} and {*found[4 :: len(LINES)]} == {"the"}


def test_seeds_make_the_same_text_again(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("".join(line + "\n" for line in LINES * 5), "utf-8")
    first, again, other = (
        run(text, tmp_path / "out", "--share", "1", "--seed", seed) for seed in "112"
    )
    assert first == again != other


def test_some_words_stay(tmp_path: Path) -> None:
    """A replacement is sought for a share of the words."""
    lines = ["a b", "c b"] * 500
    varied = [*vary_text.varied(lines, 1, 0.3, 1)]
    changed = sum(before != after for before, after in zip(lines, varied, strict=True))
    # A first word is drawn five times from two, so that it seldom stays where it is sought.
    assert 0.2 * len(lines) < changed < 0.4 * len(lines)


@pytest.mark.parametrize(
    "options, message",
    [
        (["--copies", "0"], "--copies must be 1 or more"),
        (["--share", "0"], "--share must be above 0"),
        (["--share", "1.5"], "--share must be above 0"),
    ],
)
def test_bad_options(options: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=message):
        run(tmp_path / "text", tmp_path / "out", *options)


def test_the_text_is_not_written_over(tmp_path: Path) -> None:
    """Under another name of it neither."""
    with gzip.open(tmp_path / "text.gz", "wt") as out:
        out.write("the file\n")
    before = (tmp_path / "text.gz").read_bytes()
    (tmp_path / "link").symlink_to("text.gz")
    (tmp_path / "hard").hardlink_to(tmp_path / "text.gz")
    for name in ("text.gz", "link", "hard"):
        with pytest.raises(PluginError, match=rf"{name} is the text itself\. Name another file"):
            vary_text.main([str(tmp_path / "text"), "--output", str(tmp_path / name)])
    assert (tmp_path / "text.gz").read_bytes() == before


def test_bad_text(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="Text file not found"):
        run(tmp_path / "text", tmp_path / "out")
    (tmp_path / "text").write_text("")
    with pytest.raises(PluginError, match="holds no line"):
        run(tmp_path / "text", tmp_path / "out")
