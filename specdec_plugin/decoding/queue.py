"""Continuous batching without drafts: whatever row ends, a waiting sentence takes its place.

A batch of fairseq is a queue. So many rows are decoded at once as the processor likes, and all of
them are busy until the queue is empty. With several workers each has its own rows and one thread,
so that no thread waits for another. The whole batch is one native call.
"""

import ctypes
import time
from typing import Any, Dict, List, NamedTuple

import torch
from torch import Tensor

from ..engine import CachedDecoder, native
from ..engine.native.interface import Header, field, structure
from .native_verification import NativeVerification
from .state import Batch
from .verifier import Verifier
from .watch import Watch

Header(__file__, "queue.h", "Queue queue()")

#: With fewer rows a thread is no worker: two threads read each weight once, two workers twice.
LEAST = 8


@structure
class QueueCall(ctypes.Structure):
    """Sentences that are decoded without drafts."""

    verify = field("VerifyCall", "how; rows, cache and results are the workers' own")
    source = field("SourceKvCall", "the sentences' sources, without a result")
    sentences = field("int")
    order = field("const int64_t*", "(sentences) in which they are begun")
    watch = field("WatchCall", "who is told what is done")
    bos = field("int64_t", "what is fed first")
    keys = field("const int64_t*", "(sentences) what their noise differs by, or null")
    workers = field("int")
    rows = field("int", "of each worker")
    tokens = field("int64_t*", "(sentences, max_len + 1) result")
    scores = field("float*", "(sentences, max_len + 1) result: log-probabilities of the tokens")
    lengths = field("int64_t*", "(sentences) result")


class Workers(NamedTuple):
    """Who decodes a queue.

    Attributes:
        number: workers, each with rows and a thread of its own; one has all threads.
        rows: sentences of each at once.
    """

    number: int
    rows: int

    @classmethod
    def of(cls, sentences: int, most: int, rows: int, beams: int = 1) -> "Workers":
        """Those that suit so many sentences.

        Args:
            sentences: how many.
            most: workers at most.
            rows: of each worker, at most, if every sentence has one; see :func:`rows_at_once`.
            beams: rows of each sentence.
        """
        number = max(1, min(most, sentences, sentences * beams // LEAST))
        return cls(number, min(max(1, rows // beams), -(-sentences // number)))


def rows_at_once(engine: CachedDecoder, beams: int = 1) -> int:
    """Rows that a worker decodes at once: few where the weights stay in the processor's cache.

    Args:
        engine: of the model.
        beams: rows of each sentence.
    """
    rows: int = native.library().queue_rows(*engine.handles, beams)
    return rows


class Queue:
    """Decodes batches for a verifier that the kernels run.

    Args:
        verifier: the model.
        verification: feeds, scores and chooses for it.
        workers: the most of them; 0: one for each thread.
    """

    def __init__(
        self, verifier: Verifier, verification: NativeVerification, workers: int = 0
    ) -> None:
        self._verifier, self._verification, self._workers = verifier, verification, workers
        self._library, self._scratch = native.library(), native.own(self, "queue")

    def run(self, batch: Batch) -> List[Dict[str, Any]]:
        """Decode a batch: ``tokens`` and ``positional_scores`` (length,) of each sentence.

        Args:
            batch: one for which the verification is :attr:`.NativeVerification.ready`.
        """
        verification, size = self._verification, batch.size
        width, threads = batch.constraints.max_len + 1, torch.get_num_threads()
        engine = self._verifier.decoder
        workers = Workers.of(size, self._workers or threads, rows_at_once(engine))
        order = longest_first(batch)
        tokens = torch.empty(size, width, dtype=torch.long)
        scores = torch.empty(size, width, dtype=torch.float32)
        lengths = torch.empty(size, dtype=torch.long)
        call = QueueCall(
            sentences=size,
            order=order.data_ptr(),
            bos=batch.bos,
            workers=workers.number,
            rows=workers.rows,
            tokens=tokens.data_ptr(),
            scores=scores.data_ptr(),
            lengths=lengths.data_ptr(),
        )
        source_in, kept = self._verifier.describe_queue(batch, call.verify.stack, call.source)
        others = self._verifier.describe_others(batch, call.verify)
        begin = time.perf_counter()
        handles = verification.describe(batch.constraints, call.verify)
        if batch.sampler is not None:
            batch.sampler.describe(lengths, call.verify.rows.sampling)
            call.keys = batch.sampler.keys.data_ptr()
        with Watch(size, batch.shown) as watch:
            call.watch = watch.call
            self._library.queue_run(self._scratch, *handles, source_in, ctypes.byref(call), threads)
        del kept, others
        verification.count(call.verify, time.perf_counter() - begin)
        # Copies, so that who keeps one sentence does not keep the batch.
        return [
            {
                "tokens": tokens[row, :length].clone(),
                "positional_scores": scores[row, :length].clone(),
            }
            for row, length in enumerate(lengths.tolist())
        ]


def longest_first(batch: Batch) -> Tensor:
    """(rows,) long: sources with many symbols begin, so that workers end at about one time."""
    lengths: Tensor = batch.net_input["src_lengths"]
    return lengths.argsort(descending=True, stable=True).contiguous()
