"""Makes the programs of ``data_scripts/gec`` importable, and writes a little clean text."""

import sys
from pathlib import Path

import pytest

from tests.support.clean_text import sentences
from tests.support.command_lines import SCRIPTS

sys.path.insert(0, str(SCRIPTS / "gec"))


@pytest.fixture()
def text(tmp_path: Path) -> Path:
    """A file of 300 lines, of which the last is empty."""
    path = tmp_path / "clean.txt"
    path.write_text("".join(line + "\n" for line in [*sentences(299), ""]), "utf-8")
    return path
