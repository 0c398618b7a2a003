"""What a run leaves in its folder."""

import math
import os

import pytest

from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.publish import finite, write


def test_no_limit_is_null():
    row = {"top_beta": 1, "tolerance": math.inf, "several": [(math.inf, 2.5), "inf"]}
    assert finite(row) == {**row, "tolerance": None, "several": [[None, 2.5], "inf"]}


def test_results_of_before_stay_until_new_ones_are_whole(tmp_path):
    write(str(tmp_path), "results.md", "old")
    with pytest.raises(UnicodeEncodeError):
        write(str(tmp_path), "results.md", "new \ud800")
    assert (tmp_path / "results.md").read_text("utf-8") == "old"
    assert os.listdir(tmp_path) == ["results.md"]


def test_what_cannot_be_written_is_told(tmp_path):
    (tmp_path / "results.md").mkdir()
    with pytest.raises(PluginError, match=r"results\.md cannot be written"):
        write(str(tmp_path), "results.md", "new")
