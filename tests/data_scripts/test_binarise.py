"""Binary data are written whole or not at all, however often one process writes them."""

import logging
from pathlib import Path
from typing import List

import pytest
from binarise import binarise
from fairseq_cli import preprocess

from specdec_plugin.errors import PluginError


@pytest.fixture
def arguments(tmp_path: Path) -> List[str]:
    """Arguments of ``fairseq-preprocess`` for three pairs of sentences."""
    for language in ("en", "es"):
        (tmp_path / f"train.{language}").write_text("one two\nthree\nfour five six\n")
    return ["-s", "en", "-t", "es", "--joined-dictionary", "--trainpref", str(tmp_path / "train")]


def test_two_folders_in_one_process_have_a_log_each(arguments: List[str], tmp_path: Path) -> None:
    handlers = list(preprocess.logger.handlers)
    binarise(arguments, str(tmp_path / "first"))
    # Hydra, for one, closes every handler that the process has.
    logging.shutdown()
    binarise(arguments, str(tmp_path / "second"))
    assert preprocess.logger.handlers == handlers
    logs = [(tmp_path / name / "preprocess.log").read_text() for name in ("first", "second")]
    assert [log.count("Namespace(") for log in logs] == [1, 1]
    assert (tmp_path / "second" / "train.en-es.en.idx").is_file()


def test_a_folder_is_what_it_was_after_a_failed_check(arguments: List[str], tmp_path: Path) -> None:
    def refuse(folder: str) -> None:
        assert folder == str(tmp_path / "bin.tmp")
        raise PluginError("Lines were lost.")

    with pytest.raises(PluginError, match=r"Lines were lost\."):
        binarise(arguments, str(tmp_path / "bin"), refuse)
    assert not (tmp_path / "bin").exists()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "of before").touch()
    with pytest.raises(FileNotFoundError):
        binarise([*arguments, "--validpref", str(tmp_path / "none")], str(tmp_path / "bin"))
    assert [each.name for each in (tmp_path / "bin").iterdir()] == ["of before"]
    (tmp_path / "bin").rename(tmp_path / "bin.replaced")  # as by a kill between two renames
    with pytest.raises(FileNotFoundError):
        binarise([*arguments, "--validpref", str(tmp_path / "none")], str(tmp_path / "bin"))
    assert [each.name for each in (tmp_path / "bin").iterdir()] == ["of before"]
    (tmp_path / "link").symlink_to(tmp_path / "bin")
    for name in ("bin", "link"):
        binarise(arguments, str(tmp_path / name))
    assert not (tmp_path / "bin" / "of before").exists()
    (tmp_path / "link").unlink()
    assert sorted(tmp_path.glob("bin*")) == [tmp_path / "bin"]
