"""Interleaved timing: each batch is decoded by every method before the next one comes."""

import time
from dataclasses import dataclass, field
from typing import Any, Dict, List, Sequence

import torch
from fairseq import utils
from tqdm import tqdm

from .methods import Method, Session


@dataclass
class Timing:
    """What one method needed and said.

    Attributes:
        seconds: of each batch, the same batches in the same order for every method.
        hypotheses: by sentence number: fairseq's best hypothesis.
    """

    seconds: List[float] = field(default_factory=list)
    hypotheses: Dict[int, Dict[str, Any]] = field(default_factory=dict)


def batches_of(session: Session, dataset: Any, batch_size: int) -> List[Any]:
    """fairseq's batches of a data set: similar lengths together, every sentence once."""
    limits = [session.task.max_positions(), *(model.max_positions() for model in session.models)]
    iterator = session.task.get_batch_iterator(
        dataset,
        max_sentences=batch_size,
        max_positions=utils.resolve_max_positions(*limits),
    )
    return list(iterator.next_epoch_itr(shuffle=False))


def run_interleaved(
    session: Session,
    methods: Sequence[Method],
    batches: Sequence[Any],
    repeats: int = 1,
    warm_up: int = 3,
    progress: bool = True,
) -> Dict[str, Timing]:
    """Decode every batch with every method, in an order that rotates.

    A noisy machine slows all methods alike when they take turns; a method that
    always ran first would pay for cold caches, so the first place rotates.

    Args:
        session: what is loaded.
        methods: what is timed.
        batches: fairseq's batches.
        repeats: times each batch is decoded; the least time counts.
        warm_up: batches decoded beforehand, untimed and uncounted.
        progress: show a progress bar.

    Returns:
        by method name.
    """
    for method in methods:
        for batch in batches[:warm_up]:
            _decode(session, method, batch)
        if method.trace is not None:
            method.trace.reset()
    timings = {method.name: Timing() for method in methods}
    for turn, batch in enumerate(tqdm(batches, unit="batch", disable=not progress)):
        best = {method.name: float("inf") for method in methods}
        for repeat in range(repeats):
            first = (turn + repeat) % len(methods)
            for method in (*methods[first:], *methods[:first]):
                begin = time.perf_counter()
                hypotheses = _decode(session, method, batch)
                best[method.name] = min(best[method.name], time.perf_counter() - begin)
                for name, rows in zip(batch["id"].tolist(), hypotheses):
                    timings[method.name].hypotheses[name] = rows[0]
        for name, seconds in best.items():
            timings[name].seconds.append(seconds)
    return timings


def _decode(session: Session, method: Method, batch: Any) -> Any:
    device = next(session.models[0].parameters()).device
    batch = utils.move_to_cuda(batch, device) if device.type == "cuda" else batch
    hypotheses = session.task.inference_step(method.generator, session.models, batch)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return hypotheses
