"""fairseq hands the names of FASTA files to a shell."""

import subprocess

import numpy as np
import pytest
from fairseq.data import FastaDataset

from specdec_plugin.errors import PluginError
from specdec_plugin.fairseq_compat.fasta import refuse_commands_in_names


@pytest.mark.parametrize(
    "name", ["a$(touch ran)", "a;touch ran;", "a`touch ran`", "a|touch ran", "a b"]
)
def test_a_name_that_a_shell_would_run_is_refused(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.fasta").write_text(">one\nMKV\n")
    refuse_commands_in_names()
    with pytest.raises(
        PluginError, match=r"\.fasta was refused: fairseq hands its name to a shell"
    ):
        FastaDataset(name)
    assert [path.name for path in tmp_path.iterdir()] == [f"{name}.fasta"]


@pytest.mark.parametrize("name", ["en-es.1_a", "jörg", "北京"])
def test_other_names_are_read(name, tmp_path, monkeypatch):
    refuse_commands_in_names()
    (tmp_path / f"{name}.fasta").write_text(">one\nMKV\n")
    answers = [b"0\n", b"3\n"]
    monkeypatch.setattr(subprocess, "check_output", lambda *_, **__: answers.pop(0))
    monkeypatch.setattr(
        np, "fromstring", lambda text, dtype, sep: np.array([*map(int, text.split())])
    )
    assert FastaDataset(str(tmp_path / name))[0] == (">one", "MKV")
