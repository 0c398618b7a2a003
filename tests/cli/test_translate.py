"""``specdec-translate``: a line for each line, in order, whatever they hold."""

import gzip
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch

import specdec_plugin
from specdec_plugin.api import Hypothesis
from specdec_plugin.cli.line_by_line import as_object, check_files, is_hidden, lines_of, written
from specdec_plugin.cli.translate import build_parser, hypotheses, main
from specdec_plugin.decoding import native_verification
from specdec_plugin.decoding.native_verification import NativeVerification
from specdec_plugin.errors import PluginError
from tests.support.command_lines import ENVIRONMENT, run_cli
from tests.support.compiled import needs_kernels


@pytest.fixture(scope="module")
def lines(corpus):
    return ["", *corpus.lines("test", "en")[:5], " ", "\u200b", "one two", "\t", ""]


def has_words(line):
    """The subword model leaves out a zero-width space."""
    return bool(line.strip("\u200b \t"))


@pytest.fixture(scope="module")
def wanted(packed, lines):
    """The translation of each line; a blank line stays blank."""
    texts = [line for line in lines if has_words(line)]
    found = iter(specdec_plugin.load(str(packed)).translate(texts))
    return [next(found).text if has_words(line) else "" for line in lines]


@pytest.fixture(autouse=True)
def levels(caplog):
    """The program makes loggers quieter, and pytest's stay as they were."""
    for name in ("fairseq", "specdec_plugin"):
        caplog.set_level("INFO", name)


def test_a_line_for_each_line(packed, lines, wanted):
    done = run_cli(["specdec-translate", packed], input="\n".join([*lines, ""]))
    assert done.stdout.split("\n") == [*wanted, ""]
    assert "Traceback" not in done.stderr and "INFO" not in done.stderr


@pytest.mark.parametrize("size", [1, 2, 100])
def test_files(packed, lines, wanted, tmp_path, size):
    given, output = tmp_path / "given.gz", tmp_path / "new" / "output"
    given.write_bytes(gzip.compress("\r\n".join(lines).encode()))
    flags = ["--input", str(given), "--output", str(output), "--batch-size", str(size)]
    main([str(packed), *flags])
    assert output.read_text("utf-8").split("\n") == wanted  # gzip's last line has no end
    main([str(packed), *flags])
    assert output.read_text("utf-8").split("\n") == wanted


def test_objects(packed, lines, wanted, tmp_path):
    given, output = tmp_path / "given", tmp_path / "output"
    given.write_text("\n".join([*lines, ""]), "utf-8")
    flags = ["--input", str(given), "--output", str(output), "--decoding", "beam"]
    main([str(packed), *flags, "--option", "beam=3", "--nbest", "3", "--json"])
    found = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert len(found) == len(lines)
    translator = specdec_plugin.load(str(packed), decoding="beam", beam=3)
    for line, each in zip(lines, found, strict=True):
        if not has_words(line):
            assert each == {"text": ""}
            continue
        (expected,) = translator.translate([line], nbest=3)
        assert [one["text"] for one in each["nbest"]] == [one.text for one in expected.nbest]
        assert each["score"] == pytest.approx(expected.score, abs=1e-4)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_prefixes(packed, lines, wanted, tmp_path, size):
    """Those of blank lines are not read."""
    prefixes = ["siete" if number % 2 else "" for number in range(len(lines))]
    for name, texts in (("given", lines), ("prefixes", prefixes)):
        (tmp_path / name).write_text("\n".join([*texts, ""]), "utf-8")
    flags = ["--input", str(tmp_path / "given"), "--output", str(tmp_path / "output")]
    flags += ["--prefixes", str(tmp_path / "prefixes"), "--batch-size", str(size)]
    main([str(packed), *flags])
    found = (tmp_path / "output").read_text("utf-8").split("\n")[:-1]
    for line, prefix, text, plain in zip(lines, prefixes, found, wanted, strict=True):
        if has_words(line) and prefix:
            assert text.startswith(prefix)
        else:
            assert text == plain
    assert found != wanted
    (tmp_path / "prefixes").write_text("siete\n", "utf-8")
    with pytest.raises(PluginError, match="--prefixes ends before line 2, and another text"):
        main([str(packed), *flags])
    with pytest.raises(PluginError, match="is the input, which would be lost"):
        main([str(packed), *flags, "--output", str(tmp_path / "prefixes")])
    with pytest.raises(PluginError, match="given is the input: name another file"):
        main([str(packed), *flags, "--prefixes", str(tmp_path / "given")])
    (tmp_path / "output").write_text("kept", "utf-8")
    with pytest.raises(PluginError, match=r"none\. Check the path"):
        main([str(packed), *flags, "--prefixes", str(tmp_path / "none")])
    assert (tmp_path / "output").read_text("utf-8") == "kept"


@pytest.mark.parametrize("size", [1, 3, 100])
def test_phrases(packed, lines, tmp_path, size):
    """Each line's own, behind its prefix; those of blank lines are not read."""
    phrases = ["ocho\t\tmenos" if number % 2 else "" for number in range(len(lines))]
    prefixes = ["siete" if number % 4 == 1 else "" for number in range(len(lines))]
    for name, texts in (("given", lines), ("phrases", phrases), ("prefixes", prefixes)):
        (tmp_path / name).write_text("\n".join([*texts, ""]), "utf-8")
    flags = ["--input", str(tmp_path / "given"), "--output", str(tmp_path / "output")]
    flags += ["--phrases", str(tmp_path / "phrases"), "--batch-size", str(size)]
    flags += ["--prefixes", str(tmp_path / "prefixes")]
    main([str(packed), *flags])
    found = (tmp_path / "output").read_text("utf-8").split("\n")[:-1]
    plain = specdec_plugin.load(str(packed), decoding="beam")
    for line, phrase, prefix, text in zip(lines, phrases, prefixes, found, strict=True):
        assert bool(text) == has_words(line)
        if has_words(line) and phrase:
            assert "ocho" in text and "menos" in text and text.startswith(prefix)
        elif has_words(line):
            assert text == plain.translate([line], prefixes=[prefix])[0].text
    (tmp_path / "phrases").write_text("siete\n", "utf-8")
    with pytest.raises(PluginError, match="--phrases ends before line 2, and another text does"):
        main([str(packed), *flags])
    with pytest.raises(PluginError, match="constraints='unordered' cannot be kept with decoding"):
        main([str(packed), *flags, "--decoding", "greedy"])
    with pytest.raises(PluginError, match=r"--phrases .*given is the input: name another file"):
        main([str(packed), *flags, "--phrases", str(tmp_path / "given")])
    with pytest.raises(PluginError, match="--prefixes and --phrases are both"):
        main([str(packed), *flags, "--phrases", str(tmp_path / "prefixes")])


def test_a_sentence_alone_waits_for_no_other(packed, lines, wanted):
    """A program may ask line by line."""
    program = [sys.executable, "-m", "specdec_plugin.cli.translate", packed, "--batch-size", "1"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen([*map(str, program)], env=ENVIRONMENT, **pipes) as process:
        for line, text in [pair for pair in zip(lines, wanted, strict=True) if pair[1]][:3]:
            process.stdin.write(f"{line}\n".encode())
            process.stdin.flush()
            assert process.stdout.readline().decode() == f"{text}\n"
        process.stdin.close()
        assert process.wait(60) == 0


def test_pieces_that_end_lines(packed, monkeypatch, tmp_path):
    monkeypatch.setattr("specdec_plugin.api.texts.joined", lambda subwords, pieces: "a\nb\r\nc")
    (tmp_path / "given").write_text("one\n", "utf-8")
    main([str(packed), "--input", str(tmp_path / "given"), "--output", str(tmp_path / "out")])
    assert (tmp_path / "out").read_bytes() == b"a b  c\n"


def test_lines_are_read_as_they_are_needed(packed):
    translator, read = specdec_plugin.load(str(packed)), []

    def lines():
        for number in range(100):
            read.append(number)
            yield "one"

    found = hypotheses(translator, lines(), 1)
    next(found)
    assert len(read) == 1


@pytest.mark.parametrize(
    "flags, words",
    [
        (["--nbest", "2"], "--nbest 2 has no effect on lines of text: add --json"),
        (["--batch-size", "0"], "--batch-size 0: give at least 1"),
        (["--batch-size", "9" * 20], f"batch_size {'9' * 20}: give at most 2147483647"),
        (["--option", "constraints=ordered"], "has no effect without phrases: add --phrases"),
        (["-t", "fr"], "The model has one direction"),
        (["--input", "none.txt"], "none.txt. Check the path"),
        (["--output", "."], "is a folder. Name a file"),
        (["--option", "brown=1"], "no option brown"),
        (["--json", "--nbest", "2"], "this search has 1 hypotheses"),
    ],
)
def test_refusals(packed, flags, words, tmp_path):
    (tmp_path / "given").write_text("one\n", "utf-8")
    with pytest.raises(PluginError) as caught:
        main([str(packed), "--input", str(tmp_path / "given"), *flags])
    assert words in str(caught.value)


def test_the_input_is_not_overwritten(packed, tmp_path):
    (tmp_path / "given").write_text("one\n", "utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "given")
    for output in ("given", "link"):
        flags = ["--input", str(tmp_path / "given"), "--output", str(tmp_path / output)]
        with pytest.raises(PluginError, match="is the input, which would be lost: name another"):
            main([str(packed), *flags])
    assert (tmp_path / "given").read_text("utf-8") == "one\n"


def test_a_folder_as_input_leaves_the_output_as_it_was(packed, tmp_path):
    (tmp_path / "out").write_text("kept\n", "utf-8")
    with pytest.raises(PluginError, match="is a folder, not a file"):
        main([str(packed), "--input", str(tmp_path), "--output", str(tmp_path / "out")])
    assert (tmp_path / "out").read_text("utf-8") == "kept\n"


def test_a_file_that_may_not_be_read_is_told_of_before_a_folder_is_loaded(tmp_path, monkeypatch):
    def refuse(*arguments):
        raise PermissionError

    (tmp_path / "given").write_text("one\n", "utf-8")
    monkeypatch.setattr("specdec_plugin.textfiles.open", refuse, raising=False)
    with pytest.raises(PluginError, match="given may not be read"):
        main(["no folder", "--input", "-", "--prefixes", str(tmp_path / "given")])


@pytest.mark.parametrize(
    "flags, terminal, hidden",
    [
        ([], True, True),
        ([], False, False),
        (["--output", "out"], True, False),
        (["--output", "out", "--no-progress-bar"], False, True),
    ],
)
def test_no_progress_stands_between_lines_on_a_terminal(flags, terminal, hidden, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    assert is_hidden(build_parser().parse_args(["folder", *flags])) == hidden


def test_objects_are_written_as_they_read():
    score = torch.zeros(1)
    found = as_object(Hypothesis(torch.tensor([2]), 0.0, score, 1, "▁ñ", "ñ"))
    assert '"ñ"' in found and "▁ñ" in found


def test_a_disk_without_room_is_told_of_in_a_sentence():
    with pytest.raises(PluginError, match="/dev/full"), written("/dev/full") as file:
        file.write(b"a line\n")


def test_what_can_be_read_once_is_not_opened_before(tmp_path):
    os.mkfifo(tmp_path / "pipe")  # a writer waits until it is opened, and ends when it is closed
    check_files(None, [str(tmp_path / "pipe"), os.devnull])


def test_what_can_be_read_once_is_not_counted(tmp_path):
    (tmp_path / "given").write_text("one\ntwo\n", "utf-8")
    assert lines_of(str(tmp_path / "given")) == 2
    assert lines_of(os.devnull) is None


def test_a_folder_of_pieces(packed, tmp_path):
    folder = shutil.copytree(packed, tmp_path / "pieces")
    told = json.loads((folder / "specdec.json").read_text("utf-8"))
    del told["subwords"]
    (folder / "specdec.json").write_text(json.dumps(told), "utf-8")
    with pytest.raises(PluginError, match=r"does not tell how raw text is split.*--sentencepiece"):
        main([str(folder), "--input", str(folder / "specdec.json")])


def test_what_is_done_stays_after_an_error(packed, lines, wanted, tmp_path):
    (tmp_path / "given").write_text(f"{lines[1]}\n{lines[2]}\n", "utf-8")
    (tmp_path / "prefixes").write_text("\n", "utf-8")
    flags = ["--input", str(tmp_path / "given"), "--prefixes", str(tmp_path / "prefixes")]
    flags += ["--output", str(tmp_path / "out"), "--batch-size", "1"]
    with pytest.raises(PluginError, match="--prefixes ends before line 2"):
        main([str(packed), *flags])
    assert (tmp_path / "out").read_text("utf-8") == f"{wanted[1]}\n"


def test_a_line_that_is_not_utf8_has_its_line(packed, lines, wanted, tmp_path, caplog):
    given, output = tmp_path / "given", tmp_path / "out.gz"
    given.write_bytes(lines[1].encode() + b"\n\xff\n" + lines[2].encode() + b"\n")
    main([str(packed), "--input", str(given), "--output", str(output)])
    found = gzip.decompress(output.read_bytes()).decode().split("\n")  # packed by its name
    assert len(found) == 4 and found[0] == wanted[1] and found[2:] == [wanted[2], ""]
    assert f"line 2 of {given}: it is not UTF-8, and U+FFFD replaces" in caplog.text


@pytest.mark.parametrize(
    "closed, status, told",
    [
        ("<&-", 1, "The standard input is closed: open it, or name a file."),
        (">&-", 1, "The standard output is closed: open it, or give --output."),
        ("2>&-", 0, ""),
    ],
)
def test_streams_that_are_closed(packed, lines, wanted, closed, status, told):
    """As where a daemon starts the program."""
    program = f"{sys.executable} -m specdec_plugin.cli.translate {packed} --no-progress-bar"
    done = subprocess.run(
        ["sh", "-c", f"{program} {closed}"], env=ENVIRONMENT, input=f"{lines[1]}\n",
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr.strip()) == (status, told)
    assert done.stdout == (f"{wanted[1]}\n" if status == 0 else "")


@needs_kernels
@pytest.mark.parametrize("flags,forgone", [([], True), (["--json"], False)])
def test_scores_are_computed_only_where_they_are_written(
    packed, lines, tmp_path, monkeypatch, flags, forgone
):
    """The vocabulary of the packed model is so small that 8-bit scores would not be tried."""
    monkeypatch.setattr(native_verification, "_SMALL", 0)
    given, output, built = tmp_path / "given", tmp_path / "output", []
    given.write_text("\n".join([*lines, ""]), "utf-8")
    verify = NativeVerification.describe

    def describe(verification, constraints, call):
        handles = verify(verification, constraints, call)
        built.append((bool(call.prefilter.rounded), bool(call.scored)))
        return handles

    monkeypatch.setattr(NativeVerification, "describe", describe)
    main([str(packed), "--input", str(given), "--output", str(output), *flags])
    assert {*built} == {(True, not forgone)}
    texts = output.read_text("utf-8").split("\n")[:-1]
    if flags:
        texts = [json.loads(each)["text"] for each in texts]
    translator = specdec_plugin.load(str(packed)).session.translator("greedy")
    assert texts == ["" if each is None else each.text for each in hypotheses(translator, lines, 4)]
