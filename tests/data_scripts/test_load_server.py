"""The load script, with a real server and a few clients."""

import asyncio
import json
import socket
import subprocess
import sys
from argparse import Namespace

import load_server
import pytest

from specdec_plugin.errors import PluginError
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


def test_a_server_that_tells_no_address_is_stopped(monkeypatch):
    started = []

    def start(command, **how):
        code = "import time; print('ready', flush=True); time.sleep(60)"
        started.append(subprocess.Popen([sys.executable, "-c", code], **how))
        return started[0]

    monkeypatch.setattr(load_server, "subprocess", Namespace(Popen=start, PIPE=subprocess.PIPE))
    options = Namespace(folder="x", decoding="greedy", batch_size=1, clients=1)
    with pytest.raises(PluginError, match="The server did not start"):
        load_server.serve(options, ["one"], Namespace())
    assert started[0].poll() is not None


class Connection:
    """Stands for connections, of which the second is refused."""

    opened = 0

    def __init__(self, port):
        pass

    async def open(self):
        Connection.opened += 1
        if Connection.opened == 2:
            raise ConnectionRefusedError("no")

    async def ask(self, request, content=None):
        await asyncio.sleep(0.01)
        text = {"translatedText": content["q"]} if content else None
        return 200, json.dumps(text).encode() if text else b"# what it is\nsentences 3\n"

    def close(self):
        pass


def test_a_refused_connection_is_an_error_among_answers(monkeypatch):
    monkeypatch.setattr(load_server, "Connection", Connection)
    monkeypatch.setattr(Connection, "opened", 0)
    load = load_server.Load(["one", "two"])
    options = Namespace(seconds=0.5, decoding="greedy", clients=3)
    folder = Namespace(source_lang="en", target_lang="es")
    asyncio.run(load_server.ask(1, load, folder, options))
    assert load.errors == ["ConnectionRefusedError('no')"] and load.metrics == {"sentences": 3}
    assert {text for *_, text in load.answered} == {"one", "two"}


def test_a_server_that_ends_before_its_metrics_are_read():
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(PluginError, match="ended before its metrics were read"):
        asyncio.run(load_server.metrics_of(port))
