"""Interleaved timing: the methods take turns of a few batches each, over the whole data set."""

import random
import time
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as np
import torch

from ...api import Session
from ...decoding.statistics import Statistics
from ...progress import Progress
from . import counters
from .methods import Method
from .resume import Finished, Journal, Record

#: Batches that a method decodes before the next one's turn.
TURN = 16
#: The fewest whole batches that stand for all lengths of sentences.
SPREAD = 4


@dataclass
class Timing:
    """Times and hypotheses of one method.

    Attributes:
        seconds: of each batch, the same batches in the same order for every method.
        hypotheses: by sentence number: the best hypothesis, its ``tokens`` (length,).
        statistics: of each batch.
    """

    seconds: List[float] = field(default_factory=list)
    hypotheses: Dict[int, Dict[str, Any]] = field(default_factory=dict)
    statistics: List[Statistics] = field(default_factory=list)


def batches_by_size(
    session: Session, dataset: Any, sizes: Sequence[int], sentences: Optional[int] = None
) -> Dict[int, List[Any]]:
    """Batches of several sizes that hold the same sentences.

    Args:
        session: what is loaded.
        dataset: fairseq's data set.
        sizes: sentences a batch.
        sentences: take about so many; see :func:`groups_of`.

    Returns:
        by size.
    """
    items, groups = groups_of(session, dataset, max(sizes), sentences)
    order = [number for group in groups for number in group]
    return {
        size: [
            items.collater([items[number] for number in order[first : first + size]])
            for first in range(0, len(order), size)
        ]
        for size in sizes
    }


def groups_of(
    session: Session, dataset: Any, size: int, sentences: Optional[int] = None
) -> Tuple[Any, List[Any]]:
    """fairseq's batches as numbers of sentences.

    Args:
        session: what is loaded.
        dataset: fairseq's data set.
        size: sentences a batch.
        sentences: take about so many, spread over the data set, which is in the order of length:
            full batches, or single sentences where fewer than :data:`SPREAD` batches would do.
            None, or as many as there are, takes all.

    Returns:
        the data set that has them, and the numbers of each batch.
    """
    iterator = session.iterator(dataset, size)
    groups = list(iterator.frozen_batches)
    if sentences is None or sentences >= sum(map(len, groups)):
        return iterator.dataset, groups
    if sentences >= SPREAD * size:
        groups = spread([group for group in groups if len(group) == size], sentences // size)
    else:
        # One batch or two would be of one length, such as the shortest sentences.
        drawn = spread([number for group in groups for number in group], sentences)
        groups = [drawn[first : first + size] for first in range(0, len(drawn), size)]
    return iterator.dataset, groups


def spread(items: Sequence[Any], wanted: int) -> List[Any]:
    """So many of a list, at least one, equally far apart; all where there are fewer."""
    wanted = min(len(items), max(1, wanted))
    return [items[(2 * index + 1) * len(items) // (2 * wanted)] for index in range(wanted)]


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
    turn: int = TURN,
    pause: float = 0.0,
) -> Dict[str, Timing]:
    """Decode every batch with every method, in an order that rotates.

    A noisy machine slows all methods alike when they take turns, and the rotation gives each method
    every place in the order. A turn has several batches, because in use a method runs alone: its
    weights stay in the processor's cache after the first batch of a turn. The repeats are passes
    over the whole data set, minutes apart, so that a slow phase does not affect all times of a
    batch.

    Args:
        session: what is loaded.
        methods: what is timed; afterwards their statistics are those of all batches, each of its
            fastest repeat.
        batches: fairseq's batches.
        repeats: times each batch is decoded; the least time counts.
        warm_up: batches decoded beforehand, untimed and uncounted.
        progress: show a progress bar.
        journal: where finished batches are stored; those it has already are not decoded.
        turn: batches that a method decodes before the next one's turn.
        pause: seconds without work before each batch.

    Returns:
        by method name.
    """
    count = len(batches)
    total = repeats * count
    names = [method.name for method in methods]
    finished: Finished = {} if journal is None else journal.complete(names)
    done = sum(number in finished for number in range(total))
    if done < total:
        _warm_up(session, methods, batches[:warm_up])
    hidden = not progress or done == total
    with Progress(unit="batch", initial=done, total=total, disable=hidden) as bar:
        for index, numbers in _turns(repeats, count, turn):
            if numbers[0] % count == 0:
                _forget(methods)
            left = [number for number in numbers if number not in finished]
            taken = _take_turns(session, _rotated(methods, index), batches, left, pause)
            finished.update(taken)
            _store(taken, journal)
            bar.add(len(left), tokens=_tokens_of(taken))
    repeated = ([finished[each] for each in range(batch, total, count)] for batch in range(count))
    return _collect(methods, [_fastest(records) for records in repeated])


def _warm_up(session: Session, methods: Sequence[Method], batches: Sequence[Any]) -> None:
    for method in methods:
        for batch in batches:
            decode(session, method, batch)


def _store(taken: Finished, journal: Optional[Journal]) -> None:
    """Enter the batches of a turn into the journal, if there is one."""
    if journal is not None:
        for number, records in taken.items():
            journal.add(number, records)


def _forget(methods: Sequence[Method]) -> None:
    """Begin a pass: no method may remember the sentences of the pass before."""
    for method in methods:
        if method.statistics is not None and method.generator is not None:
            method.generator.forget()


def _turns(repeats: int, count: int, turn: int) -> Iterator[Tuple[int, List[int]]]:
    """Each turn's index, and its numbers: ``repeat * count + batch``."""
    starts = ((repeat, first) for repeat in range(repeats) for first in range(0, count, turn))
    for index, (repeat, first) in enumerate(starts):
        last = min(first + turn, count)
        yield index, [repeat * count + batch for batch in range(first, last)]


def _rotated(methods: Sequence[Method], turn: int) -> Sequence[Method]:
    first = turn % len(methods)
    return (*methods[first:], *methods[:first])


def _take_turns(
    session: Session,
    methods: Sequence[Method],
    batches: Sequence[Any],
    numbers: Sequence[int],
    pause: float,
) -> Finished:
    """Time these batches with one method after the other."""
    finished: Finished = {number: {} for number in numbers}
    for method in methods:
        for number in numbers:
            batch = batches[number % len(batches)]
            if pause > 0:
                time.sleep(pause)
            finished[number][method.name] = _timed(session, method, batch)
    return finished


def _tokens_of(finished: Finished) -> int:
    """Tokens of all methods' hypotheses."""
    hypotheses = (
        tokens
        for records in finished.values()
        for record in records.values()
        for tokens in record.tokens.values()
    )
    return sum(map(len, hypotheses))


def _fastest(repeats: Sequence[Dict[str, Record]]) -> Dict[str, Record]:
    """Each method's fastest record of a batch, over its repeats."""
    return {
        name: min((records[name] for records in repeats), key=lambda record: record.seconds)
        for name in repeats[0]
    }


def _timed(session: Session, method: Method, batch: Any) -> Record:
    if method.statistics is not None:
        method.statistics.reset()
    begin = time.perf_counter()
    hypotheses = decode(session, method, batch)
    seconds = time.perf_counter() - begin
    tokens = {
        number: rows[0]["tokens"].cpu() for number, rows in zip(batch["id"].tolist(), hypotheses)
    }
    counted = method.statistics
    counted = _searched(hypotheses) if counted is None else counters.total([counted])
    return Record(seconds, tokens, counted)


def _searched(hypotheses: Sequence[Any]) -> Statistics:
    """What a search that is not ours did: a step for each token of the longest hypothesis.

    fairseq's ends when as many hypotheses are finished as its beam is wide, and gives all.
    """
    steps = sum(max(len(each["tokens"]) for each in rows) for rows in hypotheses)
    return Statistics(sentences=len(hypotheses), tokens=steps, iterations=steps)


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
            [record.statistics for record in records],
        )
        if method.statistics is not None:
            summed = counters.total(record.statistics for record in records)
            method.statistics.__dict__.update(vars(summed))
    return timings


def decode(session: Session, method: Method, batch: Any) -> Any:
    """fairseq's hypotheses of a batch, when the device is done with it."""
    return session.decode(method.generator, batch)
