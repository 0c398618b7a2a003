"""fairseq-interactive reads every line, whatever its bytes are."""

import logging
import re

import pytest

from specdec_plugin.fairseq_compat.input_lines import buffers
from tests.support.command_lines import PLUGIN, TRACEBACK, run_cli

TEXT = b" one \r\ntwo\rthree\n\nse\xf1al\n\xe2\x82\xac last"
LINES = ["one", "two\rthree", "", "se\ufffdal", "€ last"]


@pytest.mark.parametrize("size", [0, 1, 2, 5, 6])
def test_buffers(tmp_path, size, caplog):
    (tmp_path / "text").write_bytes(TEXT)
    with caplog.at_level(logging.WARNING):
        found = [*buffers(str(tmp_path / "text"), size)]
    assert [line for some in found for line in some] == LINES
    assert {len(some) for some in found[:-1]} <= {max(size, 1)}
    (warning,) = caplog.messages
    assert warning.startswith("line 4: it is not UTF-8, and U+FFFD replaces what cannot be read.")


def test_the_cure_of_utf_16_is_told(tmp_path, caplog):
    (tmp_path / "text").write_bytes("one\ntwo\n".encode("utf-16"))
    with caplog.at_level(logging.WARNING):
        (found,) = buffers(str(tmp_path / "text"), 9)
    assert len(found) == 3  # a line feed has two bytes there
    (warning,) = caplog.messages
    assert warning.startswith("line 1: ") and "iconv -f UTF-16 -t UTF-8" in warning


@pytest.mark.parametrize("size", [1, 9])
def test_a_mark_of_utf_8_is_left_out(tmp_path, size):
    """Which fairseq takes for an unknown word of the first line."""
    (tmp_path / "text").write_text("one\n\ufefftwo\n", "utf-8-sig")
    found = [line for some in buffers(str(tmp_path / "text"), size) for line in some]
    assert found == ["one", "\ufefftwo"]


def test_an_empty_text(tmp_path):
    (tmp_path / "text").touch()
    assert [*buffers(str(tmp_path / "text"), 1)] == []


@pytest.mark.parametrize("given", ["file", "-"])
def test_every_line_has_an_output_line(packed, tmp_path, given):
    text = "one\nse\udcf1al\n\rtwo\rthree\n\n\udcffone\n"
    path = tmp_path / "text"
    path.write_bytes(text.encode(errors="surrogateescape"))
    args = [packed, "--user-dir", PLUGIN, "--task", "specdec_translation", "-s", "en", "-t", "es"]
    args += ["--path", next(packed.glob("*.pt")), "--cpu", "--decoding", "greedy", "--max-len-b", 9]
    args += ["--bpe", "sentencepiece", "--sentencepiece-model", packed / "spm.model"]
    args += ["--input", path if given == "file" else "-", "--buffer-size", 2]
    done = run_cli(["fairseq-interactive", *args], input=text, errors="surrogateescape")
    assert re.findall(r"^D-(\d+)", done.stdout, re.MULTILINE) == [*"01234"]
    assert re.findall(r"line (\d+): it is not UTF-8", done.stderr) == ["2", "5"]
    assert TRACEBACK not in done.stderr
