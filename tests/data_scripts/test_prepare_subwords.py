"""Raw text to binary data: no line lost, whatever stands in it."""

import doctest
import gzip
from pathlib import Path
from typing import Any, List

import filter_pairs
import prepare_subwords
import pytest
import shardfile
import textfiles
from fairseq.data import data_utils

from specdec_plugin.errors import PluginError
from tests.support.command_lines import SCRIPTS, Corpus, run_cli

#: Line breaks of all kinds, but for one program or another only.
NASTY = "one\u2028two\x0bthree\x1cfour\x85five\x00six\rseven\teight\u00a0nine\x0c"


def read(path: Path) -> List[str]:
    return path.read_bytes().decode("utf-8").split("\n")[:-1]


@pytest.fixture()
def raw(corpus: Corpus, tmp_path: Path) -> Path:
    """The training text with nasty lines (target side packed), and one more split."""
    folder = tmp_path / "raw"
    folder.mkdir()
    nasty = ["", NASTY, " \t ", "zero\r"]  # the last: a file from Windows
    english = [*nasty, *corpus.lines("train", "en")]
    spanish = [*reversed(nasty), *corpus.lines("train", "es")]
    (folder / "train.en").write_bytes("\n".join(english).encode("utf-8"))  # no final newline
    with gzip.open(folder / "train.es.gz", "wb") as packed:
        packed.write("".join(line + "\n" for line in spanish).encode("utf-8"))
    for language in ("en", "es"):
        lines = corpus.lines("valid", language)
        (folder / f"dev.{language}").write_text("\n".join(lines) + "\n", "utf-8")
    return folder


def arguments(raw: Path, output: Path, *more: Any) -> List[str]:
    fixed = ["-s", "en", "-t", "es", "--train", raw / "train", "--output", output]
    return [str(arg) for arg in (*fixed, *more)]


def binary_lines(folder: Path, split: str, language: str) -> int:
    return len(data_utils.load_indexed_dataset(str(folder / f"{split}.en-es.{language}"), None))


def test_sentencepiece_learnt_resumed_and_reused(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    args = arguments(raw, out, "--dev", raw / "dev", "--size", 60)
    run_cli(["python", SCRIPTS / "prepare_subwords.py", *args])
    for language in ("en", "es"):
        for split, count in (("train", 244), ("valid", 20)):
            assert len(read(out / "raw" / f"{split}.{language}")) == count
            assert len(read(out / "pieces" / f"{split}.{language}")) == count
            assert binary_lines(out / "bin", split, language) == count
    assert read(out / "raw" / "train.en")[:5] == [
        "",
        "one two three four five six seven eight nine",
        "",
        "zero",
        read(out / "raw" / "train.en")[4],
    ]
    pieces = [read(out / "pieces" / f"train.{language}") for language in ("en", "es")]
    assert pieces[0][0] == pieces[0][2] == pieces[1][1] == ""
    joined = "".join(pieces[0][1].split()).replace("\u2581", " ").strip()
    assert joined == "one two three four five six seven eight nine"

    # A killed run: what is whole stays, what is missing is made again, the same.
    before = {path: path.read_bytes() for path in out.rglob("*.*") if path.is_file()}
    stamp = (out / "spm.model").stat().st_mtime_ns
    (out / "pieces" / "train.es").unlink()
    (out / "raw" / "train.en").rename(out / "raw" / "train.en.tmp")
    (out / "bin").rename(out / "bin.tmp")
    prepare_subwords.main(args)
    assert stamp == (out / "spm.model").stat().st_mtime_ns
    for path, content in before.items():
        assert path.read_bytes() == content or path.name == "preprocess.log", path

    with pytest.raises(PluginError, match="was made with another size"):
        prepare_subwords.main([*args, "--size", "70"])

    # The same model and dictionary on other text, without learning anything.
    again = tmp_path / "again"
    reuse = ["--subword-model", out / "spm.model", "--dictionary", out / "bin" / "dict.en.txt"]
    prepare_subwords.main(
        [str(arg) for arg in ("-s", "en", "-t", "es", "--test", raw / "dev", *reuse)]
        + ["--output", str(again)]
    )
    for language in ("en", "es"):
        assert read(again / "pieces" / f"test.{language}") == read(
            out / "pieces" / f"valid.{language}"
        )
        dictionary = (again / "bin" / f"dict.{language}.txt").read_bytes()
        assert dictionary == (out / "bin" / "dict.en.txt").read_bytes()
        assert binary_lines(again / "bin", "test", language) == 20


def test_only_words_that_the_target_lacks_are_cut_otherwise(tmp_path: Path) -> None:
    lines = ["the house and the horse stand there"] * 60
    wrong = [line.replace("horse", "house" if number % 2 else "hourse")
             for number, line in enumerate(lines)]  # fmt: skip
    for split in ("train", "dev"):
        (tmp_path / f"{split}.err").write_text("\n".join(wrong) + "\n", "utf-8")
        (tmp_path / f"{split}.cor").write_text("\n".join(lines) + "\n", "utf-8")
    args = ["-s", "err", "-t", "cor", "--size", "35", "--source-dropout", "0.5"]
    texts = ["--train", str(tmp_path / "train"), "--dev", str(tmp_path / "dev")]
    prepare_subwords.main([*args, *texts, "--output", str(tmp_path / "out")])
    prepare_subwords.main([*args, *texts, "--output", str(tmp_path / "again")])
    sampled = read(tmp_path / "out" / "pieces" / "train.err")
    usual = read(tmp_path / "out" / "pieces" / "valid.err")
    assert sampled == read(tmp_path / "again" / "pieces" / "train.err")
    assert len({*usual}) == 2 and sampled[1::2] == usual[1::2]  # all their words are in the target
    assert len({*sampled[::2]}) > 5
    assert {line.replace(" ", "") for line in sampled[::2]} == {usual[0].replace(" ", "")}


def test_subword_nmt(raw: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare_subwords.main(arguments(raw, out, "--subwords", "subword-nmt", "--size", 10))
    pieces = read(out / "pieces" / "train.en")
    assert len(pieces) == binary_lines(out / "bin", "train", "en") == 244
    assert "@@ " in pieces[1] and pieces[0] == ""
    assert pieces[1].replace("@@ ", "") == "one two three four five six seven eight nine"
    reuse = ["--subwords", "subword-nmt", "--subword-model", out / "bpe.codes"]
    prepare_subwords.main(arguments(raw, tmp_path / "again", *reuse))
    assert read(tmp_path / "again" / "pieces" / "train.en") == pieces


def test_mistakes_are_told_in_a_sentence(raw: Path, tmp_path: Path) -> None:
    def refused(sentence: str, *args: Any) -> None:
        with pytest.raises(PluginError, match=sentence):
            prepare_subwords.main(arguments(raw, tmp_path / "out", *args))

    refused("Text file not found: .*nowhere.en", "--test", tmp_path / "nowhere")
    refused(
        r"SentencePiece cannot learn 9000 pieces .* has \d+ at most\. Choose another --size",
        "--size",
        9000,
    )
    refused("must be from 0 to less than 1", "--source-dropout", 1)
    refused("is for SentencePiece", "--source-dropout", 0.1, "--subwords", "subword-nmt")
    refused("another test.en, test.es", "--size", 60, "--test", raw / "dev")  # not: size
    with pytest.raises(PluginError, match="No text was given"):
        prepare_subwords.main(["-s", "en", "-t", "es", "--output", str(tmp_path / "x")])
    with pytest.raises(PluginError, match="nothing to learn"):
        prepare_subwords.main(
            ["-s", "en", "-t", "es", "--output", str(tmp_path / "x"), "--test", str(raw / "dev")]
        )
    (raw / "spm.model").write_bytes(b"\n\x0e\xff\xfe")
    codes = ["--subwords", "subword-nmt", "--subword-model", raw / "spm.model"]
    with pytest.raises(PluginError, match=r"spm.model has no codes of .* leave --subwords out"):
        prepare_subwords.main(arguments(raw, tmp_path / "codes", *codes))
    for content in (b"", b"\n\x0e\xff\xfe", b"#version: 0.2\na b\n"):
        (raw / "spm.model").write_bytes(content)
        with pytest.raises(PluginError, match=r"spm.model is not a SentencePiece model"):
            prepare_subwords.main(arguments(raw, tmp_path / "codes", *codes[2:]))
    assert not (tmp_path / "codes").exists()  # the command can be repeated with the right one
    (raw / "dev.en").write_text("one more\n" * 21, "utf-8")
    (raw / "bad.en").write_bytes(b"one\nt\xffo\n")
    (raw / "bad.es").write_bytes(b"uno\ndos\n")
    for split, sentence in (
        ("dev", "dev.en has 21 lines and .*dev.es has 20"),
        ("bad", "Line 2 of .*bad.en is not UTF-8"),
    ):
        with pytest.raises(PluginError, match=sentence):
            prepare_subwords.main(
                arguments(raw, tmp_path / split, "--valid", raw / split, "--size", 60)
            )
        assert not (tmp_path / split).exists()  # the text can be mended, and the command repeated
    for language in ("en", "es"):
        (raw / f"empty.{language}").write_bytes(b"")
    refused(r"empty.en holds no line\. Name another text for --test", "--test", raw / "empty")
    with pytest.raises(PluginError, match=r"train.es.gz/y cannot be written \(Not a directory\)"):
        prepare_subwords.main(arguments(raw, raw / "train.es.gz" / "y", "--size", 60))
    (raw / "train.es.gz").write_bytes((raw / "train.es.gz").read_bytes()[:-20])
    with pytest.raises(PluginError, match=r"train.es.gz is truncated"):
        prepare_subwords.main(arguments(raw, tmp_path / "y", "--size", 60))


def test_pieces_with_a_lone_carriage_return_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "pieces"
    path.write_bytes(b"one\r\ntwo\nth\rree\n")
    assert textfiles.read_lines(str(path)) == ["one", "two", "th\rree"]
    with pytest.raises(PluginError, match=r"Line 3 of .* lone carriage return"):
        textfiles.read_piece_lines(str(path))


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("old\n", "utf-8")
    with pytest.raises(KeyboardInterrupt), textfiles.atomic_writer(str(path)) as handle:
        handle.write("new\n")
        raise KeyboardInterrupt
    assert read(path) == ["old"] and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("module", [textfiles, shardfile, filter_pairs])
def test_examples_in_docstrings(module: Any) -> None:
    result = doctest.testmod(module)
    assert result.attempted and not result.failed
