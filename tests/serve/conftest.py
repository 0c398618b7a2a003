"""One server for the tests that only ask it."""

import logging
import shutil

import pytest

from tests.support.servers import Process

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))),
    None,
)


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


@pytest.fixture(scope="module")
def browser():
    """Chromium. While it runs, asyncio has a loop in this thread."""
    if BROWSER is None:
        pytest.skip("no Chromium is installed")
    playwright = pytest.importorskip("playwright.sync_api")
    quiet = ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--no-first-run", *quiet]
        )
        yield chromium
        chromium.close()
