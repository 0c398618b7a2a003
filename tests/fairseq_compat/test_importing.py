"""fairseq imports fast, and on Python 3.14 once a line is mended; a sentence names the cure."""

import importlib
import subprocess
import sys
from pathlib import Path

import fairseq
import pytest

from specdec_plugin.fairseq_compat.importing import import_fairseq
from tests.support.command_lines import run_cli

SCRIPT = Path(__file__).parents[2] / "data_scripts" / "mend_fairseq.sh"
UNMENDED = """
import re

def interpret_dc_type(typestring):
    if re.match(
        r"(typing.|^)Union\\[(.*), NoneType\\]$", typestring
    ) or typestring.startswith("typing.Optional"):
        return "optional"
"""


def test_the_cure_is_named(monkeypatch):
    def failing(name):
        raise TypeError("str | None is not callable")

    monkeypatch.setattr(importlib, "import_module", failing)
    with pytest.raises(ImportError, match=r"mend_fairseq\.sh .* or take Python 3\.13") as raised:
        import_fairseq()
    assert raised.value.__suppress_context__


def test_another_failure_stays(monkeypatch):
    def failing(name):
        raise TypeError("another")

    monkeypatch.setattr(importlib, "import_module", failing)
    with pytest.raises(TypeError, match="another"):
        import_fairseq()


METRICS = """
import builtins, sys
original = builtins.__import__
import specdec_plugin
assert builtins.__import__ is original
print(any(name.partition(".")[0] in ("sklearn", "scipy") for name in sys.modules))
from fairseq.criterions.sentence_prediction import SentencePredictionCriterion, f1_score, pearsonr
from fairseq.tasks.audio_classification import sklearn_metrics
print(f"{f1_score(y_true=[1, 1, 0], y_pred=[1, 0, 0]):.3f} {pearsonr([1, 2, 3], [1, 2, 4])[0]:.3f}")
print(*map(int, sklearn_metrics.roc_curve([0, 1], [0.2, 0.8])[1]))
import scipy.sparse, sklearn.metrics
print(sklearn.metrics.f1_score.__module__)
"""


def test_metrics_of_classifiers_are_imported_when_they_are_used():
    printed = run_cli(["python", "-c", METRICS], fresh=True).stdout.splitlines()
    assert printed == ["False", "0.667 0.982", "0 1 1", "sklearn.metrics._classification"]


def mended(python):
    return subprocess.run([SCRIPT, python], capture_output=True, text=True, check=False)


@pytest.fixture
def python(tmp_path):
    """A Python that finds a fairseq of ours; its name, and the file to mend."""
    file = tmp_path / "fairseq" / "dataclass" / "utils.py"
    file.parent.mkdir(parents=True)
    (tmp_path / "fairseq" / "__init__.py").write_text("raise TypeError\n")
    file.write_text(UNMENDED)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return python, file


def test_the_line_is_mended_once(python):
    python, file = python
    assert "is mended" in mended(python).stdout
    once = file.read_text()
    found = {}
    exec(once, found)
    interpret = found["interpret_dc_type"]
    assert interpret("str | None") == interpret("typing.Optional[str]") == "optional"
    assert interpret("str") is None
    assert "has the new form already" in mended(python).stdout
    assert file.read_text() == once


def test_another_fairseq_is_not_changed(python):
    python, file = python
    file.write_text("nothing\n")
    done = mended(python)
    assert done.returncode == 1 and "another version of fairseq" in done.stderr
    assert file.read_text() == "nothing\n"


def test_the_installed_fairseq_has_the_line():
    source = (Path(fairseq.__file__).parent / "dataclass" / "utils.py").read_text("utf-8")
    assert 'typestring.startswith("typing.Optional")' in source


def test_without_fairseq(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    python.chmod(0o755)
    done = mended(python)
    assert done.returncode == 1 and "has no fairseq: install it first" in done.stderr
