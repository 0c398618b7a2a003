"""Counters for Prometheus."""

import time
from typing import Any, Callable, Collection, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from ..api import Hypothesis

#: The form of :meth:`Metrics.text`.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """What a server has done since it started.

    Args:
        waiting: tells how much work waits.
    """

    def __init__(self, waiting: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        known: Any = {"registry": self._registry}
        self._requests = Counter(
            "specdec_requests", "Answered requests.", ["path", "status"], **known
        )
        self._seconds = Histogram(
            "specdec_request_seconds", "From a request to the end of its answer.", ["path"],
            buckets=_SECONDS, **known,
        )  # fmt: skip
        self._open = Gauge("specdec_open_requests", "Requests that are not answered yet.", **known)
        self._waiting = Gauge("specdec_waiting", "Sentences that wait to be decoded.", **known)
        self._waiting.set_function(waiting)
        self._batches = Histogram(
            "specdec_batch_sentences", "Sentences of each batch.", buckets=_SIZES, **known
        )
        self._tokens = Counter("specdec_tokens", "Output tokens.", **known)
        self._iterations = Counter(
            "specdec_iterations", "Iterations of all sentences; fairseq's search has none.", **known
        )
        self._decoding = Counter("specdec_decoding_seconds", "Spent on decoding.", **known)

    def count(self, found: Collection[Hypothesis]) -> None:
        """Add a batch."""
        self._batches.observe(len(found))
        self._tokens.inc(sum(len(each.tokens) for each in found))
        self._iterations.inc(sum(each.iterations or 0 for each in found))
        self._decoding.inc(max((each.seconds for each in found), default=0))

    def text(self) -> bytes:
        """All of them in Prometheus' text form."""
        return generate_latest(self._registry)

    def counting(self, app: Any, paths: Iterable[str]) -> Any:
        """An ASGI application that counts the requests of another.

        Args:
            app: the other.
            paths: that are counted by name; others are "other".
        """
        known = {*paths}

        async def counted(scope: Any, receive: Any, send: Any) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            path = scope["path"] if scope["path"] in known else "other"
            begin, status = time.perf_counter(), [500]

            async def noting(message: Any) -> None:
                if message["type"] == "http.response.start":
                    status[0] = message["status"]
                await send(message)

            with self._open.track_inprogress():
                try:
                    await app(scope, receive, noting)
                finally:
                    self._requests.labels(path, status[0]).inc()
                    self._seconds.labels(path).observe(time.perf_counter() - begin)

        return counted
