"""The load script, with a real server and a few clients."""

import json

import pytest

from tests.support.command_lines import SCRIPTS, run_cli

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")


@pytest.mark.slow
def test_a_short_load(packed, corpus, tmp_path):
    output = tmp_path / "load.json"
    done = run_cli(
        ["python", SCRIPTS / "load_server.py", packed, "--input", f"{corpus.raw_dir}/test.en",
         "--clients", 4, "--seconds", 1, "--decoding", "greedy", "--output", output],
    )  # fmt: skip
    found = json.loads(output.read_text("utf-8"))
    figures = found["figures"]
    assert found["options"]["clients"] == 4
    assert figures["errors"] == figures["other than in batches"] == 0
    assert figures["answers"] > 21  # each line, and some again
    assert 0 < figures["p50 ms"] <= figures["p99 ms"] < 1000
    assert 1 <= figures["sentences a batch"] <= 4 and 0 < figures["share of time in decoding"] < 1
    assert figures["share"] == pytest.approx(
        figures["tokens a second"] / figures["tokens a second in batches"], rel=0.02, abs=0.001
    )
    assert f"{figures['answers']:,}" in done.stdout


def test_a_folder_that_is_none(corpus, tmp_path):
    args = ["python", SCRIPTS / "load_server.py", tmp_path, "--input", f"{corpus.raw_dir}/test.en"]
    done = run_cli(args, check=False)
    assert done.returncode == 1 and "has no specdec.json" in done.stderr
    assert "Traceback" not in done.stderr
