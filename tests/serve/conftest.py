"""One server for the tests that only ask it."""

import pytest

from tests.support.servers import Process


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
