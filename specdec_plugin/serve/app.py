"""The HTTP interface: LibreTranslate's requests, tokens as they appear, the page, and metrics."""

import asyncio
import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any, AsyncIterator, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from ..errors import PluginError
from .batching import FAILED, Alone, Batcher, Sentence, Work
from .decoding import Decoder, Key, Offered
from .metrics import CONTENT_TYPE, Metrics
from .questions import Limits, Offer, Question, fields_of, parameters, question
from .refusal import RefusalError

#: Nothing is fetched from elsewhere, and no other site frames the page.
_PAGE_HEADERS = {"Content-Security-Policy": "frame-ancestors 'self'"}
#: Nobody keeps events for later: neither a browser, nor nginx, which collects answers.
_EVENT_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
#: Seconds in which a client has to send more of its request.
PATIENCE = 30.0
#: Seconds in which a client has to send all of it.
LONGEST = 300.0
#: Seconds after which a client may ask again.
_LATER = {429: "1", 503: "5"}


class EndedEarlyError(RefusalError):
    """The client has gone, so that nobody reads this."""

    def __init__(self) -> None:
        super().__init__(400, "The request ended too early. Send it again.")


class Server:
    """All that requests share.

    Args:
        decoders: of one folder; after this a thread of the queue uses each.
        methods: that are offered, the default first.
        limits: of requests.
        batch_size: the most sentences that are decoded together.
    """

    def __init__(
        self,
        decoders: Sequence[Decoder],
        methods: Sequence[Offered],
        limits: Limits,
        batch_size: int,
    ) -> None:
        self._session = decoders[0].session
        assert self._session.folder is not None
        self._folder = self._session.folder
        self._methods, self._limits = methods, limits
        names = [each.name for each in methods]
        self._offer = Offer.of(self._folder, names, self._session.languages)
        self._clients: Counter[str] = Counter()
        self._batcher = Batcher(decoders, batch_size, limits.sentences)
        self._metrics = Metrics(lambda: self._batcher.waiting)
        for each in decoders:
            each.done = self._metrics.count

    def is_decoding(self) -> bool:
        """Whether accepted sentences wait, or are being decoded."""
        return not self._batcher.is_idle

    def app(self) -> Any:
        """The ASGI application."""
        routes = [
            Route("/", self.page),
            Route("/translate", self.translate, methods=["POST"]),
            Route("/stream", self.stream, methods=["POST"]),
            Route("/steps", self.steps),
            Route("/languages", self.languages),
            Route("/methods", self.methods),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
        ]
        handlers: Any = {RefusalError: _refused, HTTPException: _no_such, Exception: _failed}
        made = Starlette(routes=routes, lifespan=self._lifespan, exception_handlers=handlers)
        made.router.redirect_slashes = False  # to an address that a proxy may not have
        return self._metrics.counting(made, [route.path for route in routes])

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(self._batcher.close)

    # Translations

    async def translate(self, request: Request) -> Response:
        """``POST /translate``: LibreTranslate's answer."""
        with self._client(request):
            asked = self._question(await self._parameters(request))
            key = asked.key
            work = [Sentence(key, self._pieces(each, key)) for each in asked.sentences]
            found = await self._done(request, work)
            return JSONResponse(asked.answer(found, self._offer))

    async def stream(self, request: Request) -> Response:
        """``POST /stream``: server-sent events of one sentence, ``step`` and then ``done``.

        ``q`` is the sentence, ``prefix`` how its translation begins, ``phrases`` what it contains,
        and ``method`` how it is decoded. ``source`` and ``target`` are those of the folder where
        they are missing. See :meth:`.Decoder.stream`.
        """
        with contextlib.ExitStack() as counted:
            counted.enter_context(self._client(request))
            given = await self._parameters(request)
            key, pieces = self._sentence(given)
            loop, events = asyncio.get_running_loop(), _Events()

            def tell(step: Dict[str, Any]) -> None:
                loop.call_soon_threadsafe(events.put, "step", step)

            work = Alone(lambda decoder: decoder.stream(key, pieces, tell))
            self._batcher.add([work])
            # The client is counted until the work is done, whether it listens or not.
            leave = counted.pop_all().close
            work.future.add_done_callback(lambda done: loop.call_soon_threadsafe(leave))
        # From here on the client gets events, and no status.
        told = events.until(work)
        return StreamingResponse(told, headers=_EVENT_HEADERS, media_type="text/event-stream")

    async def steps(self, request: Request) -> Response:
        """``GET /steps?method=…&q=…``: the page on which a person steps through a sentence."""
        with self._client(request):
            key, pieces = self._sentence(fields_of(request.url.query))
            if key.phrases:
                raise RefusalError(
                    400, "A search for phrases has no steps to show. Leave phrases out."
                )
            work = Alone(lambda decoder: decoder.steps(key, pieces))
            (found,) = await self._done(request, [work])
            return HTMLResponse(found, headers=_PAGE_HEADERS)

    async def _parameters(self, request: Request) -> Dict[str, Any]:
        """Those of a body, which is read up to the limit."""
        body, most = bytearray(), self._limits.body
        now = asyncio.get_running_loop().time
        end = now() + LONGEST
        try:
            async with asyncio.timeout(PATIENCE) as patience:
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > most:
                        raise RefusalError(
                            413,
                            f"The request has more than {most:,} bytes. Send the text in parts.",
                        )
                    patience.reschedule(min(now() + PATIENCE, end))
        except TimeoutError:
            sentence = f"No more of the request came for {PATIENCE:g} seconds. Send it again."
            if now() >= end:
                sentence = f"The request took {LONGEST:g} seconds. Send the text in parts."
            raise RefusalError(408, sentence) from None
        except ClientDisconnect:  # which is no failure of the server
            raise EndedEarlyError from None
        told = request.headers.get
        return parameters(bytes(body), told("content-type", ""), told("content-encoding", ""))

    def _question(self, given: Mapping[str, Any]) -> Question:
        return question(given, self._offer, self._limits, self._session.is_blank)

    def _sentence(self, given: Mapping[str, Any]) -> Tuple[Key, str]:
        """How the one sentence in ``q`` is decoded, and its pieces."""
        wanted = {"source": self._offer.source, "target": self._offer.target}
        names = ("q", "method", "prefix", "phrases", "format", "alternatives", *wanted)
        wanted |= {name: given[name] for name in names if name in given}
        asked = self._question(wanted)
        if asked.markup or asked.key.nbest > 1:
            raise RefusalError(
                400, "One translation is shown, of text. Leave format and alternatives out."
            )
        if asked.several or len(asked.sentences) != 1:
            lines = "is a list" if asked.several else f"has {len(asked.sentences)} lines"
            raise RefusalError(400, f"The parameter q {lines}. Give one line, with a sentence.")
        return asked.key, self._pieces(asked.sentences[0], asked.key)

    def _pieces(self, sentence: str, key: Key) -> str:
        """The subword pieces of a sentence; so many that the model takes them."""
        session = self._session
        if key.direction is not None:
            session = session.between(*key.direction)
        try:
            (pieces,) = session.pieces([sentence])
        except PluginError as error:
            raise RefusalError(400, str(error)) from error
        length, room = session.length(pieces), session.room
        if length > room:
            raise RefusalError(
                413,
                f"A line has {length:,} tokens, and the model takes {room:,}. Put a sentence on "
                "each line.",
            )
        return pieces

    async def _done(self, request: Request, work: Sequence[Work]) -> List[Any]:
        """The results of some work, which nobody waits for when the client has gone."""
        self._batcher.add(work)
        futures = [asyncio.wrap_future(each.future) for each in work]
        done = asyncio.gather(*futures, return_exceptions=True)
        gone = asyncio.ensure_future(_left(request))
        either: List[asyncio.Future[Any]] = [done, gone]
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not done.done():
                raise EndedEarlyError
            found = done.result()
        finally:
            for future in futures:
                future.cancel()  # what is not decoded yet is left out
            gone.cancel()
        for each in found:
            if isinstance(each, BaseException):
                raise each
        return list(found)

    @contextlib.contextmanager
    def _client(self, request: Request) -> Iterator[None]:
        """Count a client's requests while they are not answered."""
        name, most = request.client.host if request.client else "", self._limits.requests
        if most and self._clients[name] >= most:
            raise RefusalError(
                429,
                f"{self._clients[name]:,} requests of yours are not answered yet, and the server "
                f"takes {most:,} of a client. Wait for some answers.",
            )
        self._clients[name] += 1
        try:
            yield
        finally:
            self._clients[name] -= 1
            if not self._clients[name]:
                del self._clients[name]

    # What the server is

    async def languages(self, request: Request) -> Response:
        """``GET /languages``, as LibreTranslate's; the folder's own come first."""
        names = self._folder.names
        found = [
            {"code": code, "name": names.get(code, code), "targets": targets}
            for code, targets in self._offer.targets.items()
        ]
        return JSONResponse(found)

    async def methods(self, request: Request) -> Response:
        """``GET /methods``: the names and summaries of methods, the default first."""
        return JSONResponse([each._asdict() for each in self._methods])

    async def health(self, request: Request) -> Response:
        """``GET /health``: 200 while requests are accepted; a server that stops accepts none."""
        return JSONResponse({"status": "ok", "waiting": self._batcher.waiting})

    async def metrics(self, request: Request) -> Response:
        """``GET /metrics``, in Prometheus' text form."""
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def page(self, request: Request) -> Response:
        """``GET /``: the page to try the model on."""
        text = Path(__file__).with_name("page.html").read_text("utf-8")
        return HTMLResponse(text, headers=_PAGE_HEADERS)


async def _left(request: Request) -> None:
    """Wait until the client of a request, all of which is read, has closed its connection."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


class _Events:
    """Server-sent events that are told by another thread."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Optional[str]] = asyncio.Queue()

    def put(self, name: str, content: Dict[str, Any]) -> None:
        """Add an event."""
        self._queue.put_nowait(f"event: {name}\ndata: {json.dumps(content)}\n\n")

    async def until(self, work: Alone) -> AsyncIterator[str]:
        """The events until some work is done, and one of its result."""
        future = asyncio.wrap_future(work.future)
        # The work tells its last step before it is done, and both come through the same loop.
        future.add_done_callback(lambda done: self._queue.put_nowait(None))
        try:
            while (event := await self._queue.get()) is not None:
                yield event
            error = future.exception()
            if error is None:
                self.put("done", future.result())
            else:
                known = isinstance(error, RefusalError)
                self.put("error", {"error": str(error) if known else FAILED})
            yield self._queue.get_nowait() or ""
        finally:
            future.cancel()  # nobody waits for it any more


def _answer(status: int, sentence: str) -> Response:
    """An error in LibreTranslate's form."""
    headers = {"Retry-After": _LATER[status]} if status in _LATER else {}
    if status == 408:
        headers["Connection"] = "close"  # what comes now is the rest of that request
    return JSONResponse({"error": sentence}, status, headers)


async def _refused(request: Request, error: Any) -> Response:
    return _answer(error.status, error.sentence)


async def _failed(request: Request, error: Exception) -> Response:
    return _answer(500, "The server failed. Its log has the cause.")


async def _no_such(request: Request, error: Any) -> Response:
    path = request.url.path
    if error.status_code == 405:
        taken = error.headers["Allow"]
        use = "POST" if "POST" in taken else "GET"
        answer = _answer(405, f"{path} does not take {request.method}. Use {use}.")
        answer.headers["Allow"] = taken
        return answer
    if error.status_code == 404:
        return _answer(
            404,
            f"There is nothing at {path[:80]}. Ask /translate, /languages, /health or /metrics.",
        )
    return _answer(error.status_code, f"{error.detail}.")
