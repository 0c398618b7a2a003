"""What is captured, and when. The graphs themselves need a GPU: tests/gpu."""

import logging

import torch

from specdec_plugin.engine.graphs import capture
from specdec_plugin.engine.graphs.capture import CAPTURED_AT, GraphMemory, Replayed
from specdec_plugin.engine.graphs.rows_function import RowsFunction


class Graph:
    """Stands for a CUDA graph."""

    def __init__(self, work):
        self.replay = work


class Memory(GraphMemory):
    """Captures nothing, and counts."""

    def __init__(self, usable=True):
        super().__init__(torch.device("cpu"))
        self.usable, self.captured = usable, 0

    def capture(self, work):
        self.captured += 1
        return Graph(work)


def test_work_that_is_done_often_is_captured_once():
    done, memory = [], Memory()
    work = Replayed(lambda: done.append(1), memory)
    for run in range(1, CAPTURED_AT + 4):
        work()
        assert len(done) == run and memory.captured == (run >= CAPTURED_AT)


def test_nothing_is_captured_on_a_cpu():
    assert not GraphMemory(torch.device("cpu")).usable
    done, memory = [], Memory(usable=False)
    work = Replayed(lambda: done.append(1), memory)
    for _ in range(5):
        work()
    assert len(done) == 5 and memory.captured == 0


def test_what_cannot_be_captured_runs(monkeypatch, caplog):
    """Any error of the capture is told once, and ends all further tries."""

    class Stream:
        def __init__(self, *device):
            pass

        def wait_stream(self, other):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    def refuse(*args, **more):
        raise RuntimeError("operation not permitted when stream is capturing")

    fakes = {"CUDAGraph": object, "Stream": Stream, "current_stream": Stream, "graph": refuse}
    fakes |= {"stream": lambda stream: stream, "graph_pool_handle": lambda: (0, 1)}
    for name, fake in fakes.items():
        monkeypatch.setattr(capture.torch.cuda, name, fake)
    memory, done = GraphMemory(torch.device("cpu")), []
    memory.usable = True
    work, other = (Replayed(lambda: done.append(1), memory) for _ in range(2))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            work()
            other()
    assert len(done) == 11  # once more before the capture
    assert [each.message for each in caplog.records if "captured" in each.message] == [
        "This model is not captured in CUDA graphs, and runs more slowly, because operation not "
        "permitted when stream is capturing"
    ]


def test_a_function_of_rows():
    """Rows that are too many are computed, and not returned."""
    run, seen = RowsFunction(torch.device("cpu")), []

    def function(one, other):
        seen.append(one.size(0))
        return one + other.sum(1), one * 2

    for rows in (9, 10, 3, 9):
        one, other = torch.randn(rows), torch.randn(rows, 4)
        found = run("sum", function, one, other)
        for mine, theirs in zip(found, function(one, other)):
            torch.testing.assert_close(mine, theirs)
    assert seen == [10, 9, 10, 10, 3, 3, 10, 9]
    tripled = run("other", lambda one, other: (3 * one,), torch.ones(2), torch.ones(2, 4))
    assert tripled[0].tolist() == [3, 3]
