"""What long programs show of how far they are."""

import io
import sys
from types import SimpleNamespace

import pytest

from specdec_plugin import progress
from specdec_plugin.progress import Progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """tqdm's, which a test sets."""
    now = SimpleNamespace(seconds=0.0)
    monkeypatch.setattr("tqdm.std.time", lambda: now.seconds)
    return now


def test_a_line_a_minute_where_nobody_looks(clock, capsys):
    with Progress(total=1000, unit="line") as bar:
        for _ in range(1000):
            clock.seconds += 1
            bar.add(1, tokens=30)
    told = capsys.readouterr().err
    lines = told.split("\n")
    assert lines.pop() == "" and 1000 / progress.SECONDS - 2 < len(lines) <= 18
    assert "\r" not in told and all(len(line) <= 70 for line in lines)
    assert "30 tokens/s" in lines[0] and "<15:" in lines[0]  # what is left
    assert "1000/1000" in lines[-1]


def test_nothing_of_short_work(clock, capsys):
    for _ in Progress(range(50), unit="line"):
        clock.seconds += 1
    assert capsys.readouterr().err == ""


def test_a_bar_on_a_terminal(clock, monkeypatch):
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with Progress(total=8, initial=4, unit="line") as bar:
        for _ in range(4):
            clock.seconds += 2
            bar.add(1, tokens=1000)
    assert "\r" in stream.getvalue() and "500 tokens/s" in stream.getvalue()
    assert "8/8" in stream.getvalue()


def test_hidden(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Terminal())
    with Progress(total=4, disable=True) as bar:
        bar.add(4, tokens=9)
    assert sys.stderr.getvalue() == ""


@pytest.mark.parametrize("disable", [False, True])
def test_a_closed_standard_error_gets_nothing(disable, monkeypatch):
    """As behind ``2>&-``, or in a program without a console."""
    monkeypatch.setattr(sys, "stderr", None)
    with Progress(total=2, unit="sentence", disable=disable) as bar:
        bar.add(2, 30)
    assert list(Progress(range(3), disable=disable)) == [0, 1, 2]
