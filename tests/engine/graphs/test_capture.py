"""What is captured, and when. The graphs themselves need a GPU: tests/gpu."""

import contextlib
import gc
import logging
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from specdec_plugin.engine.graphs import capture
from specdec_plugin.engine.graphs.capture import Graphs, Replayed, unusual_runs
from specdec_plugin.engine.graphs.rows_function import RowsFunction


class Graph:
    """Stands for a CUDA graph."""

    def __init__(self, work):
        self.replay = work


class Counting(Graphs):
    """Captures nothing, and counts."""

    def __init__(self, usable=True):
        super().__init__(torch.device("cpu"))
        self.usable, self.captured = usable, 0

    def run(self, work):
        work()

    def capture(self, work):
        self.captured += 1
        return Graph(work)

    def replay(self, graph):
        graph.replay()


@pytest.mark.parametrize("at", [1, 2, 5])
def test_work_is_captured_once(at):
    """Each call does the work once; only a capture in the first one needs another run before."""
    done, graphs = [], Counting()
    replayed = Replayed(graphs, at)
    for run in range(1, at + 4):
        replayed(lambda: done.append(1))
        assert len(done) == run + (at == 1) and graphs.captured == (run >= at)


def test_a_run_that_failed_is_not_the_one_before_a_capture():
    """What a first run makes, such as results that stay, must not come from a capture."""
    graphs, done = Counting(), []
    replayed = Replayed(graphs)

    def work():
        done.append(1)
        if len(done) == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replayed(work)
    replayed(work)
    assert graphs.captured == 0
    replayed(work)
    assert graphs.captured == 1 and len(done) == 3


def test_nothing_is_captured_on_a_cpu():
    device = torch.device("cpu")
    assert not Graphs.of(device).usable and Graphs.of(device) is Graphs.of(device)
    done, graphs = [], Counting(usable=False)
    replayed = Replayed(graphs)
    for _ in range(5):
        replayed(lambda: done.append(1))
    assert len(done) == 5 and graphs.captured == 0


class Stream:
    """Stands for a stream of CUDA; notes which one is current."""

    current = None

    def __init__(self, *device):
        pass

    def wait_stream(self, other):
        pass


class Refused:
    """Stands for a CUDA graph that cannot be captured."""

    def capture_begin(self, **options):
        assert not gc.isenabled()

    def capture_end(self):
        raise RuntimeError("operation not permitted when stream is capturing")


def capturing(monkeypatch, graph, usual, set_stream):
    """What captures on a CPU, with stand-ins for CUDA's graphs and streams."""
    fakes = {"CUDAGraph": graph, "Stream": Stream, "set_stream": set_stream}
    fakes |= {"current_stream": lambda device: usual, "graph_pool_handle": lambda: (0, 1)}
    fakes |= {"device": contextlib.nullcontext}
    for name, fake in fakes.items():
        monkeypatch.setattr(capture.torch.cuda, name, fake)
    graphs = Graphs(torch.device("cpu"))
    graphs.usable = True
    return graphs


def test_what_cannot_be_captured_runs(monkeypatch, caplog):
    """The error is told once, and ends all further tries; nothing else has changed."""
    usual = Stream()

    def set_stream(stream):
        Stream.current = stream

    set_stream(usual)
    graphs, done = capturing(monkeypatch, Refused, usual, set_stream), []
    some, unusual = [Replayed(graphs) for _ in range(2)], unusual_runs()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            for each in some:
                each(lambda: done.append(1))
    assert len(done) == 10  # a capture computes nothing
    assert [each.message for each in caplog.records if "captured" in each.message] == [
        "This model is not captured in CUDA graphs, and runs more slowly, because operation not "
        "permitted when stream is capturing"
    ]
    assert Stream.current is usual and gc.isenabled()
    assert unusual_runs() - unusual == 3  # two first runs and a try; what follows is usual


class Full(Refused):
    """Stands for a CUDA graph that finds no memory."""

    def capture_end(self):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")


def test_without_memory_a_capture_is_tried_again(monkeypatch):
    graphs, done = capturing(monkeypatch, Full, Stream(), lambda stream: None), []
    replayed = Replayed(graphs)
    for _ in range(4):
        replayed(lambda: done.append(1))
    assert graphs.usable and len(done) == 4


def test_replays_on_two_streams_follow_one_another(monkeypatch):
    """Graphs share memory for what they compute on the way."""
    waited, streams = [], [Stream(), Stream()]
    monkeypatch.setattr(Stream, "wait_stream", lambda self, other: waited.append((self, other)))
    graphs = Graphs(torch.device("cpu"))
    for number in (0, 0, 1, 0):
        monkeypatch.setattr(
            capture, "current_stream", lambda device, number=number: streams[number]
        )
        graphs.replay(Graph(lambda: None))
    assert waited == [(streams[1], streams[0]), (streams[0], streams[1])]


def test_a_stream_is_asked_for_once(monkeypatch):
    """By its address, which is had in less time."""
    addresses, asked = iter([7, 8, 7, 7]), []
    monkeypatch.setattr(
        torch._C, "_cuda_getCurrentRawStream", lambda index: next(addresses), raising=False
    )
    fake = lambda index: asked.append(index) or f"stream {len(asked)}"  # noqa: E731
    monkeypatch.setattr(capture.torch.cuda, "current_stream", fake)
    capture._stream.cache_clear()
    found = [capture.current_stream(torch.device("cuda", 3)) for _ in range(4)]
    capture._stream.cache_clear()
    assert found == ["stream 1", "stream 2", "stream 1", "stream 1"] and asked == [3, 3]


def test_unusual_runs_are_counted_by_each_thread():
    before = unusual_runs()
    capture._note_unusual()
    assert unusual_runs() == before + 1
    with ThreadPoolExecutor(1) as others:
        assert others.submit(unusual_runs).result() == 0


def test_a_function_of_rows():
    """Rows that are too many are computed, and not returned."""
    run, seen = RowsFunction(torch.device("cpu")), []

    def function(one, other):
        seen.append(one.size(0))
        return one + other.sum(1), one * 2

    for rows in (9, 10, 3, 9):
        one, other = torch.randn(rows), torch.randn(rows, 4)
        found = run("sum", function, one, other)
        for mine, theirs in zip(found, function(one, other), strict=True):
            torch.testing.assert_close(mine, theirs)
    assert seen == [12, 9, 12, 10, 3, 3, 12, 9]
    tripled = run("other", lambda one, other: (3 * one,), torch.ones(2), torch.ones(2, 4))
    assert tripled[0].tolist() == [3, 3]
