"""Waiting sentences of all requests are decoded together, by a few threads.

Whenever a thread is free, it takes the oldest work. If that is a sentence, others that wait and
are decoded alike join it in one batch, those of similar length first. So batches grow with the
load, nobody waits for a batch to fill, and nobody waits for ever.
"""

import contextlib
import logging
import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Callable, Deque, Iterator, List, Protocol, Sequence, Union

import torch

from ..errors import PluginError
from .refusal import RefusalError

logger = logging.getLogger(__name__)

#: What the future of work fails with that was begun, and could not be done.
FAILED = "The server failed to decode this. Its log has the cause."


@dataclass(eq=False)
class Sentence:
    """A sentence that may be decoded with others.

    Attributes:
        key: tells how; sentences of one batch have the same.
        pieces: its subword pieces.
        future: of its hypothesis.
    """

    key: Any
    pieces: str
    future: "Future[Any]" = field(default_factory=Future)

    @property
    def length(self) -> int:
        """How many pieces it has, but for one."""
        return self.pieces.count(" ")


@dataclass(eq=False)
class Alone:
    """Work that is done alone.

    Attributes:
        call: does it with the decoder of the thread that has come to it.
        future: of its result.
    """

    call: Callable[[Any], Any]
    future: "Future[Any]" = field(default_factory=Future)


Work = Union[Sentence, Alone]


class Decodes(Protocol):
    """What a thread decodes with."""

    def decode(self, key: Any, pieces: List[str]) -> Sequence[Any]:
        """A result for each sentence, from their key and their pieces."""


class Batcher:
    """A queue of work and the threads that do it.

    A thread reads sentences, finds subwords and joins them while another one computes. PyTorch's
    threads are shared between those that are busy.

    Args:
        decoders: of a thread each.
        batch_size: the most sentences of a batch.
        room: the most work that may wait.

    Attributes:
        closed: whether nothing more is accepted.
    """

    def __init__(
        self,
        decoders: Sequence[Decodes],
        batch_size: int,
        room: int,
    ) -> None:
        self._batch_size, self._room = batch_size, room
        self._waiting: Deque[Work] = deque()
        self._changed = threading.Condition()
        self._busy, self._processors = 0, torch.get_num_threads()
        self.closed = False
        self._threads = [
            threading.Thread(target=self._run, args=[each], name="decoding", daemon=True)
            for each in decoders
        ]
        for thread in self._threads:
            thread.start()

    @property
    def waiting(self) -> int:
        """How much work waits."""
        return len(self._waiting)

    @property
    def is_idle(self) -> bool:
        """Whether no work waits, and none is being done."""
        return not self._waiting and not self._busy

    def add(self, work: Sequence[Work]) -> None:
        """Accept all of some work, or none of it.

        Raises:
            RefusalError: there is no room, or the queue is closed.
        """
        with self._changed:
            if self.closed:
                raise RefusalError(503, "The server is stopping. Ask again in a minute.")
            if len(self._waiting) + len(work) > self._room:
                wanted = (each for each in self._waiting if not each.future.cancelled())
                self._waiting = deque(wanted)
            if len(self._waiting) + len(work) > self._room:
                raise RefusalError(
                    503,
                    f"The server is busy: {len(self._waiting):,} sentences wait, of at most "
                    f"{self._room:,}. Ask again in some seconds, or send fewer at once.",
                )
            self._waiting.extend(work)
            self._changed.notify(len(work))  # more may wait than one thread takes

    def close(self) -> None:
        """Accept nothing more, and wait until all that was accepted is done."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _run(self, decoder: Decodes) -> None:
        while batch := self._next():
            # A request that ended early cancels what nobody waits for.
            batch = [each for each in batch if each.future.set_running_or_notify_cancel()]
            if batch:
                with self._share():
                    self._do(batch, decoder)

    @contextlib.contextmanager
    def _share(self) -> Iterator[None]:
        """Count this thread as busy, and take its share of the processors."""
        with self._changed:
            self._busy += 1
            crowd = max(self._busy, min(len(self._threads), self._busy + len(self._waiting)))
        torch.set_num_threads(max(1, self._processors // crowd))
        try:
            yield
        finally:
            with self._changed:
                self._busy -= 1

    def _next(self) -> List[Work]:
        """The oldest work, and what joins it; none when the queue is closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self.closed)
            if not self._waiting:
                return []
            first = self._waiting[0]
            if isinstance(first, Alone):
                return [self._waiting.popleft()]
            alike = [
                each for each in self._waiting
                if isinstance(each, Sentence) and each.key == first.key
            ]  # fmt: skip
            # Sentences of one length end together, so that none is waited for.
            alike[1:] = sorted(alike[1:], key=lambda each: abs(each.length - first.length))
            batch: List[Work] = [*alike[: self._batch_size]]
            chosen = {*map(id, batch)}
            self._waiting = deque(each for each in self._waiting if id(each) not in chosen)
            return batch

    def _do(self, batch: List[Work], decoder: Decodes) -> None:
        """Do some work together; if that fails, each by itself, so that one spoils no other."""
        try:
            results = self._results(batch, decoder)
        except BaseException as error:  # of a library too, which may end Python
            if len(batch) > 1:
                for each in batch:
                    self._do([each], decoder)
                return
            if isinstance(error, PluginError):
                logger.warning(error)
                error = RefusalError(400, str(error))
            elif not isinstance(error, RefusalError):
                logger.exception("decoding failed")
                error = RefusalError(500, FAILED)
            batch[0].future.set_exception(error)
            return
        for each, result in zip(batch, results):
            each.future.set_result(result)

    def _results(self, batch: List[Work], decoder: Decodes) -> Sequence[Any]:
        first = batch[0]
        if isinstance(first, Alone):
            return [first.call(decoder)]
        return decoder.decode(
            first.key, [each.pieces for each in batch if isinstance(each, Sentence)]
        )
