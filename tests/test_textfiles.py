"""One reader of lines for every text that a program is given."""

import gzip
import io

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.textfiles import opened, read_lines

TEXT = "one\r\ntwo\u2028half\rhalf\n\nlast"
LINES = ["one", "two\u2028half\rhalf", "", "last"]


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_lines_end_in_line_feeds_only(tmp_path, end):
    path = tmp_path / "text"
    path.write_bytes((TEXT + end).encode())
    assert list(read_lines(str(path))) == LINES
    packed = tmp_path / "text.gz"
    packed.write_bytes(gzip.compress((TEXT + end).encode()))
    assert list(read_lines(str(packed))) == LINES


def test_an_empty_file_has_no_line(tmp_path):
    path = tmp_path / "text"
    path.write_bytes(b"")
    assert list(read_lines(str(path))) == []


def test_a_mark_of_utf_8_is_left_out(tmp_path):
    """Of the first line alone; elsewhere it is text."""
    path = tmp_path / "text"
    for encoding in ("utf-8", "utf-8-sig"):
        path.write_text("one\n\ufefftwo\n", encoding)
        assert list(read_lines(str(path))) == ["one", "\ufefftwo"]
    path.write_bytes(b"\xef\xbb\xbf\xff\n")
    with pytest.raises(PluginError, match=r"Line 1 of .* is not UTF-8"):
        list(read_lines(str(path)))
    assert list(read_lines(str(path), replace=True)) == ["\ufffd"]


def test_standard_input(monkeypatch):
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert list(read_lines("-")) == LINES
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a\n\xff\n")))
    with pytest.raises(PluginError, match=r"Line 2 of standard input is not UTF-8"):
        list(read_lines("-"))


def test_every_line_may_be_read(tmp_path, caplog):
    """U+FFFD replaces what is not UTF-8; the marks of UTF-16 mean nothing amid a text."""
    path = tmp_path / "text"
    path.write_bytes(b"a\nb \xff c\n\xff\xfe\r\n")
    assert list(read_lines(str(path), replace=True)) == ["a", "b \ufffd c", "\ufffd\ufffd"]
    for number, each in zip((2, 3), caplog.messages, strict=True):
        assert each == (
            f"line {number} of {path}: it is not UTF-8, and U+FFFD replaces what cannot be read. "
            "Convert it (for instance with iconv)."
        )
    path.write_bytes("a\nb\n".encode("utf-16"))
    with pytest.raises(PluginError, match="It begins as UTF-16 does"):
        list(read_lines(str(path), replace=True))


def test_standard_input_that_is_closed(monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    with pytest.raises(PluginError, match="The standard input is closed: open it, or name a file"):
        list(read_lines("-"))


def test_bytes_are_unpacked(tmp_path):
    path = tmp_path / "bytes.gz"
    path.write_bytes(gzip.compress(b"\xff\x00", mtime=0))
    with opened(str(path)) as file:
        assert file.read() == b"\xff\x00"


@pytest.mark.parametrize(
    "name, content, sentence",
    [
        ("none", None, "File not found: "),
        (".", None, "is a folder"),
        ("latin", "a\nse\u00f1al\n".encode("latin-1"), r"Line 2 of .*latin is not UTF-8"),
        ("wide", "a".encode("utf-16"), r"Line 1 of .* not UTF-8. It .* iconv -f UTF-16 -t UTF-8\."),
        ("wide-be", b"\xfe\xff\0a", r"It begins as UTF-16 does\. Convert it with iconv"),
        ("no.gz", b"plain", "is no gzip file in spite of its name"),
        ("half.gz", gzip.compress(b"a b c d e f g h" * 99, mtime=0)[:30], "is truncated"),
    ],
)
def test_what_is_no_text_is_told_in_a_sentence(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(PluginError, match=sentence):
        list(read_lines(str(tmp_path / name)))


def test_a_file_of_somebody_else(monkeypatch):
    def refuse(path, mode):
        raise PermissionError(13, "Permission denied", path)

    monkeypatch.setattr("builtins.open", refuse)
    with pytest.raises(PluginError, match=r"theirs may not be read\. Check the permissions"):
        list(read_lines("theirs"))


@pytest.mark.parametrize("end", ["", ".gz"])
def test_paths_that_cannot_be_opened(tmp_path, end):
    (tmp_path / "file").write_bytes(b"a\n")
    for name, reason in (("file/x", "Not a directory"), ("x" * 300, "File name too long")):
        path, told = tmp_path / name, rf"cannot be opened \({reason}\)\. Check the path"
        with pytest.raises(PluginError, match=told):
            list(read_lines(f"{path}{end}"))


def test_errors_of_who_reads_are_its_own(tmp_path):
    """What opens another file meanwhile tells of that one."""
    (tmp_path / "text").write_bytes(b"a\n")
    with pytest.raises(FileNotFoundError, match="other"), opened(str(tmp_path / "text")):
        (tmp_path / "other").read_bytes()
