"""Queues: who decodes, and how many rows at once, changes nothing."""

import os
import random

import pytest
import torch

from specdec_plugin.decoding import loop, queue, steps
from specdec_plugin.decoding.gate import FixedGate
from specdec_plugin.decoding.queue import LEAST, Workers, rows_at_once
from specdec_plugin.engine import CachedDecoder
from specdec_plugin.methods.beam import native as beam
from tests.support import methods, tiny
from tests.support.compiled import needs_kernels

pytestmark = pytest.mark.usefixtures("threads_again")

LENGTHS = [random.Random(3).randint(0, 9) for _ in range(41)]
COUNTED = "certified", "rescored", "certain"
DIMS = "encoder_embed_dim", "decoder_embed_dim"
WAYS = {
    "greedy": {},
    "certified": {},
    "sampled": {"options": {"sampling": True, "temperature": 0.8}},
    "beam": {"options": {"beam": 3, "nbest": 3, "lenpen": 0.7}},
}


def decode_at_once(rows, monkeypatch):
    for module in (queue, beam):
        monkeypatch.setattr(module, "rows_at_once", lambda engine, beams=1: rows)


def decoded(way, threads):
    method = "greedy" if way == "sampled" else way
    model = methods.verifier(method)
    torch.set_num_threads(threads)
    ours = methods.generator(method, model, **WAYS[way])
    found = ours.generate([model], tiny.sample(LENGTHS))
    return [[(each["tokens"].tolist(), each["score"]) for each in rows] for rows in found]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("threads", "rows", "least"), [(1, 1, 1), (2, 3, 1), (4, 2, 1), (3, 64, 8)]
)
def test_workers_and_rows_change_nothing(way, threads, rows, least, monkeypatch):
    expected = decoded(way, 1)
    decode_at_once(rows, monkeypatch)
    monkeypatch.setattr(queue, "LEAST", least)
    found = decoded(way, threads)
    for ours, theirs in zip(found, expected, strict=True):
        assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]
        for (_, score), (_, wanted) in zip(ours, theirs, strict=True):
            assert float(score) == pytest.approx(float(wanted), abs=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_who_keeps_a_hypothesis_does_not_keep_the_batch(way):
    model = methods.verifier("greedy" if way == "sampled" else way)
    ours = methods.generator("greedy" if way == "sampled" else way, model, **WAYS[way])
    for rows in ours.generate([model], tiny.sample(LENGTHS)):
        for each in rows:
            for kept in (each["tokens"], each["positional_scores"]):
                assert kept.untyped_storage().nbytes() == kept.nbytes


def test_small_batches_have_one_worker_and_large_ones_full_rows():
    assert Workers.of(1, 4, 14) == Workers(1, 1)
    assert Workers.of(2 * LEAST, 4, 14) == Workers(2, LEAST)
    assert Workers.of(1000, 4, 14) == Workers(4, 14)
    assert Workers.of(1000, 2, 28, beams=5) == Workers(2, 5)
    assert Workers.of(3, 4, 14, beams=100) == Workers(3, 1)


@needs_kernels
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.int8])
def test_weights_from_memory_are_shared_by_more_rows(dtype):
    """The second projection, of 10 million weights, leaves the cache in float32 only."""
    rows = []
    for words in (10, 80_000):
        symbols, dims = tiny.dictionary(words), dict.fromkeys(DIMS, 128)
        model = tiny.model(symbols=symbols, **dims)
        engine = CachedDecoder(model.decoder, dtype)
        rows.append((rows_at_once(engine), rows_at_once(engine, 5)))
    (few, searched), many = rows
    assert few < 28 and searched == 2 * few
    if dtype is None:
        assert min(many) >= 56 and {each % few for each in many} == {0}
    else:
        assert many == (few, searched)


@pytest.mark.parametrize(("large", "kept"), [(len(LENGTHS), False), (len(LENGTHS) + 1, True)])
def test_in_large_batches_drafts_and_queue_free_the_others_memory(large, kept, monkeypatch):
    monkeypatch.setattr(loop, "LARGE_BATCH", large)
    model = methods.verifier("hybrid-jacobi")
    ours = methods.generator("hybrid-jacobi", model, draft_rows=-1)  # a measured gate
    step, slices = ours.loop.step, iter([0, 8, 8, 0, 1, 0])  # of three batches
    monkeypatch.setattr(ours.loop.schedule, "next", lambda size, left: next(slices))
    monkeypatch.setattr(ours.loop.schedule, "record", lambda *measured: None)
    monkeypatch.setattr(ours.loop, "gate", FixedGate())
    have_queue, freed = [], []
    drafted, free = ours.loop._drafted, step._native.free_memory

    def noted(batch):
        have_queue.append(step._queue is not None)
        return drafted(batch)

    monkeypatch.setattr(ours.loop, "_drafted", noted)
    monkeypatch.setattr(step._native, "free_memory", lambda: freed.append(free()))
    expected = decoded("greedy", 1)
    for _ in range(3):
        found = ours.generate([model], tiny.sample(LENGTHS))
        tokens = [[each["tokens"].tolist() for each in rows] for rows in found]
        assert tokens == [[tokens for tokens, _ in rows] for rows in expected]
    assert have_queue == [kept] * 3 and len(freed) == (0 if kept else 2)


@pytest.mark.parametrize("way", ["greedy", "certified", "sampled"])
@pytest.mark.parametrize("rows", [1, 3, 64])
def test_a_prefix_is_kept_whatever_row_a_sentence_takes(way, rows, monkeypatch):
    """Prefixes of any length, one of them with a gap, against the loop without a queue.

    Some end their sentences, so that other rows move while they are in their prefixes.
    """
    pad, width, queued = methods.SYMBOLS.pad(), 3, []
    prefix = torch.randint(4, 16, (len(LENGTHS), width))
    real = torch.arange(len(LENGTHS)).unsqueeze(1) % (width + 1)
    prefix = prefix.masked_fill(torch.arange(width) >= real, pad)
    prefix[7, 1] = pad
    prefix[::5, 0] = methods.SYMBOLS.eos()
    queue_of = steps.VerifiedStep.queue
    monkeypatch.setattr(
        steps.VerifiedStep, "queue", lambda *args: queued.append(1) or queue_of(*args)
    )
    decode_at_once(rows, monkeypatch)
    found = behind(way, prefix)
    assert queued == [1]
    monkeypatch.setattr(steps.VerifiedStep, "queues", lambda self: False)
    assert found == behind(way, prefix) and queued == [1]
    for tokens, forced in zip(found, prefix.tolist(), strict=True):
        # At the length limit a sentence ends, whatever is forced.
        begin = tokens[:-1][:width]
        pairs = zip(begin, forced[: len(begin)], strict=True)
        assert all(token == wanted or wanted == pad for token, wanted in pairs)


def behind(way, prefix):
    """The tokens of each sentence, which begin with those of a prefix."""
    method = "greedy" if way == "sampled" else way
    model = methods.verifier(method)
    ours = methods.generator(method, model, **WAYS[way])
    rows = ours.generate([model], tiny.sample(LENGTHS), prefix_tokens=prefix)
    return [best["tokens"].tolist() for best, *_ in rows]


@pytest.mark.parametrize(("large", "kept"), [(8, False), (9, True)])
def test_after_large_batches_the_queue_is_freed(large, kept, monkeypatch):
    monkeypatch.setattr(loop, "LARGE_BATCH", large)
    model = methods.verifier("greedy")
    ours = methods.generator("greedy", model)
    found = [ours.generate([model], tiny.sample([5, 3] * 4)) for _ in range(2)]
    assert (ours.loop.step._queue is not None) == kept
    first, second = ([each["tokens"].tolist() for (each,) in rows] for rows in found)
    assert first == second


@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_counted_of_a_batch_is_its_own(threads, monkeypatch):
    decode_at_once(1, monkeypatch)
    monkeypatch.setattr(queue, "LEAST", 1)
    torch.set_num_threads(threads)
    model, counts = methods.verifier("certified"), []
    ours = methods.generator("certified", model)
    for _ in range(2):
        ours.generate([model], tiny.sample(LENGTHS))
        counts.append([getattr(ours.statistics, name) for name in COUNTED])
    assert counts[1] == [2 * count for count in counts[0]]
    assert counts[0][0] == ours.statistics.tokens / 2 and min(counts[0]) > 0


@pytest.mark.parametrize("way", WAYS)
def test_sentences_may_begin_in_any_order(way, monkeypatch):
    """Rows have room for their first source, which is the longest one if the order says so."""
    expected = decoded(way, 1)
    for module in (queue, beam):
        monkeypatch.setattr(
            module, "longest_first", lambda batch: batch.net_input["src_lengths"].argsort()
        )
    decode_at_once(7, monkeypatch)
    found = decoded(way, 2)
    for ours, theirs in zip(found, expected, strict=True):
        assert [tokens for tokens, _ in ours] == [tokens for tokens, _ in theirs]


@needs_kernels
@pytest.mark.parametrize("way", ["greedy", "beam"])
def test_time_is_counted_of_the_workers_that_there_are(way):
    """The machine has not so many processors, so that fewer decode than are asked for."""
    most = 32 * (os.cpu_count() or 1)
    model = methods.verifier(way, symbols=tiny.dictionary(2000))
    options = {"max_len_b": 4, **WAYS[way].get("options", {})}
    ours = methods.generator(way, model, options=options, decoding_workers=most)
    shares = []
    for _ in range(5):
        before = dict(ours.statistics.seconds)
        ours.generate([model], tiny.sample([3] * (LEAST * most), words=2000))
        took = {name: each - before[name] for name, each in ours.statistics.seconds.items()}
        shares.append(took["projection"] / took["verifier"])
    # The projection takes most of it, and a part in 32 would be left. Other programs, or a
    # sanitizer, may hold up one batch, but not each.
    assert max(shares) > 1 / 8
