"""The queue: who is decoded together, what fails, and what is done before it closes."""

import threading
from concurrent.futures import CancelledError

import pytest
import torch

from specdec_plugin.errors import PluginError
from specdec_plugin.serve.batching import FAILED, Alone, Batcher, Sentence
from specdec_plugin.serve.refusal import RefusalError
from tests.support.servers import until


class Held:
    """Decodes by capital letters, when it is let; notes its batches."""

    def __init__(self):
        self.batches, self.let, self.begun = [], threading.Event(), threading.Event()

    def decode(self, key, pieces):
        self.batches.append((key, list(pieces)))
        self.begun.set()
        assert self.let.wait(60)
        if "bad" in pieces:
            raise ValueError("bad")
        if "end" in pieces:
            raise PluginError("This ends Python.")
        return [each.upper() for each in pieces]


@pytest.fixture
def held():
    return Held()


@pytest.fixture
def batcher(held):
    made = Batcher([held], batch_size=3, room=6)
    first = Sentence("first", "wait")
    made.add([first])
    assert held.begun.wait(60)
    yield made
    held.let.set()
    made.close()
    assert first.future.result() == "WAIT"


def results(work):
    return [each.future.result(60) for each in work]


def test_those_that_wait_are_decoded_together(held, batcher):
    work = [Sentence(key, text) for key, text in zip("aabaaa", "pqrstu", strict=True)]
    batcher.add(work[:4])
    batcher.add(work[4:])
    assert batcher.waiting == 6
    held.let.set()
    assert results(work) == [*"PQRSTU"]
    assert held.batches[1:] == [("a", ["p", "q", "s"]), ("b", ["r"]), ("a", ["t", "u"])]
    assert batcher.waiting == 0


def test_work_that_is_done_alone_keeps_its_turn(held, batcher):
    work = [Sentence("a", "p"), Alone(lambda decoder: len(decoder.batches)), Sentence("a", "q")]
    batcher.add(work)
    held.let.set()
    assert results(work) == ["P", 2, "Q"]  # q joined p, which came before


def test_all_or_nothing_is_accepted(held, batcher):
    work = [Sentence("a", "p") for _ in range(4)]
    batcher.add(work)
    with pytest.raises(RefusalError, match="4 sentences wait, of at most 6") as caught:
        batcher.add([Sentence("a", "q") for _ in range(3)])
    assert caught.value.status == 503 and batcher.waiting == 4
    batcher.add([Sentence("a", "q") for _ in range(2)])
    held.let.set()
    assert results(work) == ["P"] * 4


def test_one_that_fails_spoils_no_other(held, batcher, caplog):
    work = [Sentence("a", text) for text in ("p", "bad", "end")]
    other = Sentence("a", "q")
    batcher.add([*work, other])
    held.let.set()
    assert results([work[0], other]) == ["P", "Q"]
    told = [(500, FAILED), (400, "This ends Python.")]
    for failed, expected in zip(work[1:], told, strict=True):
        error = failed.future.exception(60)
        assert isinstance(error, RefusalError) and (error.status, str(error)) == expected
    assert "ValueError: bad" in caplog.text and "This ends Python." in caplog.text


def test_what_nobody_waits_for_is_left_out(held, batcher):
    work = [Sentence("a", text) for text in "pqr"]
    batcher.add(work)
    assert work[1].future.cancel()
    held.let.set()
    assert results([work[0], work[2]]) == ["P", "R"]
    assert held.batches[1:] == [("a", ["p", "r"])]
    with pytest.raises(CancelledError):
        work[1].future.result()


def test_closing_answers_all_that_was_accepted(held, batcher):
    work = [Sentence("a", text) for text in "pqrstu"]
    batcher.add(work)
    closing = threading.Thread(target=batcher.close)
    closing.start()
    until(lambda: batcher.closed)
    with pytest.raises(RefusalError, match="The server is stopping") as caught:
        batcher.add([Sentence("a", "v")])
    assert caught.value.status == 503
    held.let.set()
    closing.join(60)
    assert results(work) == [*"PQRSTU"]


def test_several_decoders_share_the_processors(monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    shares = []
    monkeypatch.setattr(torch, "set_num_threads", shares.append)
    decoders = [Held(), Held()]
    batcher = Batcher(decoders, batch_size=2, room=9)
    work = [Sentence("a", text) for text in "pqrstu"]
    batcher.add(work[:1])
    until(lambda: len(shares) == 1)
    assert shares == [4]  # nobody else is busy, and nobody waits
    batcher.add(work[1:])
    until(lambda: decoders[0].begun.is_set() and decoders[1].begun.is_set())
    assert shares == [4, 2] and batcher.waiting == 3
    for each in decoders:
        each.let.set()
    assert results(work) == [*"PQRSTU"]
    batcher.close()
    batches = [pieces for each in decoders for _, pieces in each.batches]
    assert sorted(map(len, batches)) == [1, 1, 2, 2]
    with pytest.raises(RefusalError, match="The server is stopping"):
        batcher.add([Sentence("a", "v")])


def test_work_that_arrives_at_once_wakes_several_threads():
    decoders = [Held(), Held()]
    batcher = Batcher(decoders, batch_size=2, room=9)
    work = [Sentence("a", text) for text in "pqr"]
    batcher.add(work)
    assert all(each.begun.wait(60) for each in decoders)
    for each in decoders:
        each.let.set()
    assert results(work) == [*"PQR"]
    batcher.close()
