"""Servers of tests: real processes, and asking them."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from .command_lines import ENVIRONMENT


class Answer(NamedTuple):
    status: int
    body: bytes
    headers: Dict[str, str]

    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks a server; each request has a connection of its own."""

    def __init__(self, port: int) -> None:
        self.port = port

    def ask(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        kind: Optional[str] = "application/json",
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {} if body is None or kind is None else {"Content-Type": kind}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        found = Answer(answer.status, answer.read(), dict(answer.getheaders()))
        connection.close()
        return found

    def get(self, path: str) -> Answer:
        return self.ask("GET", path)

    def post(self, path: str, content: Any) -> Answer:
        return self.ask("POST", path, json.dumps(content).encode())

    def translate(self, q: Any, **more: Any) -> Answer:
        return self.post("/translate", {"q": q, "source": "en", "target": "es", **more})

    def events(self, **content: Any) -> List[Tuple[str, Any]]:
        """The server-sent events of a sentence."""
        answer = self.post("/stream", content)
        assert answer.status == 200, answer
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-cache"
        assert answer.headers["x-accel-buffering"] == "no"
        found = re.findall(r"event: (.*)\ndata: (.*)\n\n", answer.body.decode())
        return [(name, json.loads(data)) for name, data in found]

    def metric(self, name: str) -> float:
        """The value of a metric, with its labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        return next((float(x.split()[-1]) for x in lines if x.startswith(name + " ")), 0.0)


class Process:
    """``specdec-serve`` in a process of its own, on a port that was free."""

    def __init__(self, folder: Any, *flags: Any) -> None:
        command = [sys.executable, "-m", "specdec_plugin.serve", folder, "--port", "0", *flags]
        self.process = subprocess.Popen(
            [*map(str, command)],
            env=ENVIRONMENT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._errors: List[str] = []
        assert self.process.stderr is not None
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self._errors += self.process.stderr

    @property
    def errors(self) -> str:
        return "".join(self._errors)

    def ready(self) -> Client:
        """A client, when the server says its address."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        found = re.search(r"is served at http://127\.0\.0\.1:(\d+)/$", line)
        assert found, line + self.errors
        return Client(int(found[1]))

    def stop(self) -> Tuple[int, str]:
        """Stop it as an operator does: its exit status, and what it printed at the end."""
        os.kill(self.process.pid, signal.SIGTERM)
        assert self.process.stdout is not None
        printed = self.process.stdout.read()
        return self.process.wait(60), printed


@contextmanager
def in_a_thread(app: Any, *stopping: Any) -> Iterator[Client]:
    """An ASGI application in this process.

    Args:
        app: the application.
        stopping: arguments of our own server behind its configuration; none: uvicorn's server.
    """
    import uvicorn

    from specdec_plugin.serve.__main__ import listening
    from specdec_plugin.serve.stopping import StoppingServer

    listener = listening("127.0.0.1", 0)
    config = uvicorn.Config(app, log_level="warning")
    server = StoppingServer(config, *stopping) if stopping else uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],))
    thread.start()
    try:
        yield Client(listener.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


def until(condition: Any, seconds: float = 60) -> None:
    """Wait for something that happens in another thread or process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "It did not happen."
        time.sleep(0.01)


def at_once(calls: Sequence[Any]) -> List[Any]:
    """The results of calls in threads that begin together."""
    barrier, found = threading.Barrier(len(calls)), [None] * len(calls)

    def run(number: int) -> None:
        barrier.wait()
        found[number] = calls[number]()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found
