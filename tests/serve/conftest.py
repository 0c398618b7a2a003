"""One server for the tests that only ask it."""

import logging

import pytest

from tests.support.servers import Process


@pytest.fixture(autouse=True)
def levels_of_logs():
    """A server that was refused in this process leaves no logger quieter than it was."""
    before = {name: logging.getLogger(name).level for name in ("fairseq", "asyncio")}
    yield
    for name, level in before.items():
        logging.getLogger(name).setLevel(level)


@pytest.fixture(scope="session")
def server(packed):
    """A real process that serves ``packed``; its client."""
    pytest.importorskip("specdec_plugin.serve.app")  # needs the extra serve
    process = Process(packed)
    yield process.ready()
    status, printed = process.stop()
    assert status == 0, process.errors
    assert printed == "Stopped: all accepted requests are answered.\n"
    assert "Traceback" not in process.errors
