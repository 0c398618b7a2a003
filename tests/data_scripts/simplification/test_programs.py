"""Pairs for simplification: parts that are apart in all corpora, controls, and baselines."""

import doctest
import gzip
from pathlib import Path
from typing import Dict, List

import pytest
import shorten
import simple_text
import simplification_pairs
from hypothesis import given
from hypothesis import strategies as st
from simplification_pairs import controls_of, letters, part_of

from specdec_plugin.errors import PluginError

RAW = [f"The {word} (of number {n}) wasn't found." for n, word in enumerate("abcdefghij" * 6)]
PTB = [
    f"the {word} -lrb- of number {n} -rrb- was n't found ."
    for n, word in enumerate("abcdefghij" * 6)
]


def write(path: Path, lines: List[str]) -> None:
    text = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)


def read(path: Path) -> List[str]:
    return path.read_text("utf-8").splitlines()


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    """Two corpora of the same sentences, one raw and one tokenised, in other orders."""
    write(tmp_path / "raw.orig.gz", RAW)
    for number in range(2):
        write(tmp_path / f"raw.simp.{number}.gz", [f"Number {n} was lost." for n in range(60)])
    write(tmp_path / "ptb.orig", PTB[::-1])
    write(tmp_path / "ptb.simp.0", [f"{n} was lost ." for n in reversed(range(60))])
    return tmp_path


def test_a_sentence_is_in_the_same_part_of_every_corpus(corpora: Path) -> None:
    output = corpora / "pairs"
    simplification_pairs.main([str(corpora), "raw", "ptb", "--output", str(output)])
    parts: Dict[str, set] = {}
    for part in ("test", "valid"):
        of_raw, of_ptb = [read(output / f"{part}.{name}.orig") for name in ("raw", "ptb")]
        assert {*of_raw} == {*of_ptb} != set()
        parts[part] = {*of_raw}
    parts["train"] = {line.rsplit(" ", 2)[0] for line in read(output / "train.src")}
    assert sum(map(len, parts.values())) == 60 == len(set.union(*parts.values()))
    test = read(output / "test.raw.orig")
    numbers = [line.split()[5] for line in test]
    assert read(output / "test.raw.ref1") == [f"number {n} was lost ." for n in numbers]
    assert not (output / "test.raw.ref2").exists()
    # Equal references of a sentence are one pair.
    assert len(read(output / "train.tgt")) == 2 * len(parts["train"])


def test_text_has_one_form() -> None:
    for module in (simple_text, simplification_pairs, shorten):
        assert not doctest.testmod(module).failed
    assert [*map(simple_text.normalised, RAW)] == PTB_NORMALISED


PTB_NORMALISED = [line.replace("-lrb-", "(").replace("-rrb-", ")") for line in PTB]


@given(st.text("ab .", max_size=30), st.text("ab .", max_size=30))
def test_controls_are_two_words(source: str, target: str) -> None:
    length, similarity = controls_of(source, target).split()
    assert 2 <= int(length.removeprefix("len")) <= 14
    assert 0 <= int(similarity.removeprefix("sim")) <= 10
    assert controls_of(source, source).endswith("sim10")


def test_part_depends_on_letters_only() -> None:
    lines = [f"{letters('line')} {number} ." for number in range(200)]
    assert all(part_of(line) == part_of(line.replace(" ", "")) for line in lines)
    shares = [sum(part_of(line) == part for line in lines) for part in ("test", "valid")]
    assert 20 < shares[0] < 60 and 8 < shares[1] < 35


def test_words_are_dropped(tmp_path: Path) -> None:
    write(tmp_path / "text", ["b b b a a c", "e"])
    write(tmp_path / "lines", ["a b c d e .", "", "a"])
    common = [str(tmp_path / "lines"), "--output", str(tmp_path / "out"), "--share", "0.4"]
    shorten.main([*common, "--drop", "last"])
    assert read(tmp_path / "out") == ["a b c d", "", "a"]
    shorten.main([*common, "--drop", "rarest", "--text", str(tmp_path / "text")])
    assert read(tmp_path / "out") == ["a b c .", "", "a"]


def test_refusals(corpora: Path) -> None:
    output = ["--output", str(corpora / "out")]
    with pytest.raises(PluginError, match=r"none\.orig"):
        simplification_pairs.main([str(corpora), "none", *output])
    write(corpora / "ptb.simp.1", ["one"])
    with pytest.raises(PluginError, match=r"has 1 lines and .* has 60"):
        simplification_pairs.main([str(corpora), "ptb", *output])
    write(corpora / "alone.orig", ["one"])
    with pytest.raises(PluginError, match=r"alone\.simp\.0 is missing"):
        simplification_pairs.main([str(corpora), "alone", *output])
    for wrong in (["--drop", "rarest"], ["--drop", "last", "--text", "x"]):
        with pytest.raises(PluginError, match="Give both or neither"):
            shorten.main([str(corpora / "ptb.orig"), *wrong, *output])
    with pytest.raises(PluginError, match="give a share from 0"):
        shorten.main([str(corpora / "ptb.orig"), "--drop", "last", "--share", "1", *output])


def test_inputs_are_not_written_over(tmp_path: Path) -> None:
    write(tmp_path / "lines", ["a b c d e ."])
    write(tmp_path / "text", ["a b"])
    common = [str(tmp_path / "lines"), "--drop", "rarest", "--text", str(tmp_path / "text")]
    for name in ("lines", "text"):
        with pytest.raises(PluginError, match=rf"{name} is an input\. Name another file"):
            shorten.main([*common, "--output", str(tmp_path / name)])
    assert read(tmp_path / "lines") == ["a b c d e ."] and read(tmp_path / "text") == ["a b"]
