"""Copies of a device's tables are read in the order in which they were made."""

import pytest
import torch

from specdec_plugin.engine.graphs import tables
from specdec_plugin.engine.graphs.tables import Tables


def test_copies_are_read_in_order_and_stay():
    table, tables, read = torch.zeros(2, 3), Tables(torch.zeros(2, 3), 2), []
    for number in range(5):
        table.fill_(number)
        tables.push(table)
        if number > 0:
            assert len(tables) == 2
            read.append(int(tables.pop()[0, 0]))
    assert read == [0, 1, 2, 3] and len(tables) == 1
    table.fill_(-1)
    assert tables.pop().tolist() == [[4.0] * 3] * 2


def test_too_many_and_too_few():
    tables = Tables(torch.zeros(1), 3)
    for _ in range(3):
        tables.push(torch.zeros(1))
    with pytest.raises(RuntimeError, match="3 tables were not read"):
        tables.push(torch.zeros(1))
    for _ in range(3):
        tables.pop()
    with pytest.raises(IndexError):
        tables.pop()


def test_what_is_unread_can_be_forgotten():
    tables = Tables(torch.zeros(1), 2)
    for number in (1.0, 2.0):
        tables.push(torch.tensor([number]))
    tables.clear()
    assert len(tables) == 0
    tables.push(torch.tensor([3.0]))
    assert tables.pop().item() == 3


class Event:
    """Stands for an event of CUDA; notes who waited."""

    waited = 0

    def record(self, stream):
        self.recorded = stream

    def synchronize(self):
        assert self.recorded == "stream"
        Event.waited += 1


def test_events_are_waited_for(monkeypatch):
    """What a GPU's tables do, on stand-ins for its events and its memory."""
    zeros = torch.zeros
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(tables, "current_stream", lambda device: "stream")
    monkeypatch.setattr(torch, "zeros", lambda *shape, pin_memory, **more: zeros(*shape, **more))

    class Like:
        device, shape, dtype = torch.device("cuda"), (2,), torch.float32

    ring, seen = Tables(Like(), 2), []
    for number in range(6):
        ring.push(torch.full((2,), float(number)))
        seen.append(ring.pop())
        assert seen[-1].tolist() == [number, number] and Event.waited == number + 1
    addresses = [each.data_ptr() for each in seen]
    ring.push()
    del ring  # Whoever gets the memory next must not be written to by a kernel.
    assert Event.waited == 8
    assert addresses[0] == addresses[2] == addresses[4] != addresses[1] == addresses[3]


def test_a_kernel_may_write_them():
    """To the places in turn, beginning with the first when all is forgotten."""
    tables = Tables(torch.zeros(1), 2)
    for _ in range(2):
        for run in range(5):
            tables.ring[run % 2] = run
            tables.push()
            if run > 0:
                assert tables.pop().item() == run - 1
        tables.clear()
