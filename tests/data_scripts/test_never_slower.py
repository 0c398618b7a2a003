"""data_scripts/never_slower.py: methods take turns with greedy decoding."""

import json
from argparse import Namespace

import never_slower
import pytest
import torch

from specdec_plugin.errors import PluginError


def test_rows_of_a_random_model_are_kept(tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "slower.json"
    args = ["--random", "tiny", "8", "2", "20", "6", "--output", str(output)]
    args += ["--methods", "specdec+drafter,blockwise,auto", "--sentences", "4", "--passes", "2"]
    args += ["--threads", "1", "--folder", str(tmp_path / "made")]
    before = torch.get_num_threads()
    try:
        never_slower.main([*args, "--batch-sizes", "2,1"])
        whole = json.loads(output.read_text())
        first, second = whole["rows"]
        output.write_text(json.dumps({**whole, "rows": [first]}))
        never_slower.main([*args, "--batch-sizes", "2,1"])
    finally:
        torch.set_num_threads(before)
    kept, new = json.loads(output.read_text())["rows"]
    assert kept == first and new != second and (kept["batch"], new["batch"]) == (2, 1)
    for cell in (kept, new):
        assert list(cell["seconds"]) == ["greedy", "specdec+drafter", "blockwise", "auto"]
        assert all(len(each) == 2 and min(each) > 0 for each in cell["seconds"].values())
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].startswith("| tiny | 2 | ") and lines[-1].startswith("| tiny | 1 | ")


@pytest.mark.parametrize(
    "then, words",
    [
        ({"settings": {"passes": 7, "threads": 1}}, "threads 1, but now it is 2"),
        ({"settings": {}}, "passes None, but now it is 7"),
        ({"machine": "another"}, "machine another, but now it is this"),
        ({"settings": {}, "machine": None}, "passes None, but now it is 7"),
        ({"commit": "before"}, "commit before, but now it is after"),
    ],
)
def test_rows_of_another_origin_are_not_kept(tmp_path, then, words) -> None:
    origin = {"machine": "this", "commit": "after", "settings": {"passes": 7, "threads": 2}}
    output = tmp_path / "slower.json"
    assert never_slower.measured_before(output, origin) == []
    for found in (origin, {**origin, "date": "2026-11-01"}):
        output.write_text(json.dumps({**found, "rows": [1]}))
        assert never_slower.measured_before(output, origin) == [1]
    output.write_text(json.dumps({**origin, **then, "rows": [1]}))
    with pytest.raises(PluginError, match=f"slower.json were measured with {words}.*another --out"):
        never_slower.measured_before(output, origin)


def test_a_method_that_is_none(tmp_path) -> None:
    output = tmp_path / "slower.json"
    with pytest.raises(PluginError, match=r"no method guess\. Methods are specdec, "):
        never_slower.main(["--methods", "specdec,guess", "--output", str(output)])
    assert not output.exists()


class Split(list):
    """Stands for a data set of sentences."""

    collater = list


def test_sentences_are_spread_over_the_split() -> None:
    sentences = Split({"source": [number]} for number in range(700))
    session = Namespace(split={"valid": sentences}.get)
    case = never_slower.Case("x", "x.pt", "data", "en", "es")
    for count in (3, 400, 700, 900):
        options = Namespace(subset="valid", sentences=count)
        batches = never_slower.batches_of(session, case, 64, options)
        (numbers,) = zip(*(item["source"] for batch in batches for item in batch), strict=True)
        assert len({*numbers}) == min(count, 700)
        apart = -(-700 // count)
        assert numbers[0] < apart and numbers[-1] >= 700 - apart
