"""Interleaved timing: each batch is decoded by every method before the next one comes."""

import random
import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

import numpy as np
import torch
from fairseq import utils
from tqdm import tqdm

from . import counters
from .methods import Method, Session
from .resume import Finished, Journal, Record


@dataclass
class Timing:
    """What one method needed and said.

    Attributes:
        seconds: of each batch, the same batches in the same order for every method.
        hypotheses: by sentence number: the best hypothesis, its ``tokens`` (length,).
    """

    seconds: List[float] = field(default_factory=list)
    hypotheses: Dict[int, Dict[str, Any]] = field(default_factory=dict)


def batches_of(session: Session, dataset: Any, batch_size: int) -> List[Any]:
    """fairseq's batches of a data set: similar lengths together, every sentence once."""
    return list(_iterator(session, dataset, batch_size).next_epoch_itr(shuffle=False))


def batches_by_size(
    session: Session, dataset: Any, sizes: Sequence[int], sentences: Optional[int] = None
) -> Dict[int, List[Any]]:
    """Batches of several sizes that hold the same sentences.

    Args:
        session: what is loaded.
        dataset: fairseq's data set.
        sizes: sentences a batch.
        sentences: take about so many, as whole batches of the largest size that are
            spread over the data set, which is in the order of length; None takes all.

    Returns:
        by size.
    """
    iterator = _iterator(session, dataset, max(sizes))
    groups = list(iterator.frozen_batches)
    if sentences is not None:
        wanted = min(len(groups), max(1, sentences // max(sizes)))
        groups = [groups[place * len(groups) // wanted] for place in range(wanted)]
    order = [number for group in groups for number in group]
    items = iterator.dataset
    return {
        size: [
            items.collater([items[number] for number in order[first : first + size]])
            for first in range(0, len(order), size)
        ]
        for size in sizes
    }


def _iterator(session: Session, dataset: Any, batch_size: int) -> Any:
    limits = [session.task.max_positions(), *(model.max_positions() for model in session.models)]
    return session.task.get_batch_iterator(
        dataset,
        max_sentences=batch_size,
        max_positions=utils.resolve_max_positions(*limits),
        disable_iterator_cache=True,  # else the first batch size is kept for ever
    )


def seed_everything(seed: int) -> None:
    """Seed Python's, NumPy's and PyTorch's random numbers."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def run_interleaved(
    session: Session,
    methods: Sequence[Method],
    batches: Sequence[Any],
    repeats: int = 1,
    warm_up: int = 3,
    progress: bool = True,
    journal: Optional[Journal] = None,
) -> Dict[str, Timing]:
    """Decode every batch with every method, in an order that rotates.

    A noisy machine slows all methods alike when they take turns; a method that
    always ran first would pay for cold caches, so the first place rotates.

    Args:
        session: what is loaded.
        methods: what is timed; afterwards each trace has the counters of all batches,
            of the fastest repeat.
        batches: fairseq's batches.
        repeats: times each batch is decoded; the least time counts.
        warm_up: batches decoded beforehand, untimed and uncounted.
        progress: show a progress bar.
        journal: where finished batches are stored; those it has already are not decoded.

    Returns:
        by method name.
    """
    finished: Finished = {}
    if journal is not None:
        finished = journal.complete([method.name for method in methods])
    todo = [turn for turn in range(len(batches)) if turn not in finished]
    if todo:
        for method in methods:
            for batch in batches[:warm_up]:
                decode(session, method, batch)
    done = len(batches) - len(todo)
    for turn in tqdm(
        todo, unit="batch", initial=done, total=len(batches), disable=not progress or not todo
    ):
        finished[turn] = _take_turns(session, methods, batches[turn], turn, repeats)
        if journal is not None:
            journal.add(turn, finished[turn])
    return _collect(methods, [finished[turn] for turn in range(len(batches))])


def _take_turns(
    session: Session, methods: Sequence[Method], batch: Any, turn: int, repeats: int
) -> Dict[str, Record]:
    """Time one batch; the method that goes first changes with ``turn`` and repeat."""
    best: Dict[str, Record] = {}
    for repeat in range(repeats):
        first = (turn + repeat) % len(methods)
        for method in (*methods[first:], *methods[:first]):
            record = _timed(session, method, batch)
            if method.name not in best or record.seconds < best[method.name].seconds:
                best[method.name] = record
    return {method.name: best[method.name] for method in methods}


def _timed(session: Session, method: Method, batch: Any) -> Record:
    if method.trace is not None:
        method.trace.reset()
    begin = time.perf_counter()
    hypotheses = decode(session, method, batch)
    seconds = time.perf_counter() - begin
    tokens = {
        number: rows[0]["tokens"].cpu() for number, rows in zip(batch["id"].tolist(), hypotheses)
    }
    trace = None if method.trace is None else counters.total([method.trace])
    return Record(seconds, tokens, trace)


def _collect(methods: Sequence[Method], finished: Sequence[Dict[str, Record]]) -> Dict[str, Timing]:
    timings = {}
    for method in methods:
        records = [each[method.name] for each in finished]
        timings[method.name] = Timing(
            [record.seconds for record in records],
            {
                number: {"tokens": tokens}
                for record in records
                for number, tokens in record.tokens.items()
            },
        )
        if method.trace is not None:
            traces = [record.trace for record in records if record.trace is not None]
            method.trace.__dict__.update(counters.total(traces).__dict__)
    return timings


def decode(session: Session, method: Method, batch: Any) -> Any:
    """fairseq's hypotheses of a batch, when the device is done with it."""
    device = session.device
    batch = utils.move_to_cuda(batch, device) if device.type == "cuda" else batch
    hypotheses = session.task.inference_step(method.generator, session.models, batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return hypotheses
