"""One server for the tests that only ask it."""

import pytest

from tests.support.servers import Process

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
pytest.importorskip("prometheus_client")


@pytest.fixture(scope="session")
def server(packed):
    """A real process that serves ``packed``; its client."""
    process = Process(packed)
    yield process.ready()
    status, printed = process.stop()
    assert status == 0, process.errors
    assert printed == "Stopped: all accepted requests are answered.\n"
    assert "Traceback" not in process.errors
