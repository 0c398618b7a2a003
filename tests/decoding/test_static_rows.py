"""Rows on a device, whose counts begin with a batch or with each run."""

import pytest
import torch

from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.state import Batch, Rows
from specdec_plugin.decoding.static_rows import StaticRows
from specdec_plugin.engine.graphs.capture import Graphs
from specdec_plugin.engine.graphs.tensors import Shape, Sizes, StaticTensors

PAD, UNK, EOS = 1, 3, 2


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("room, sentences", [(0, 0), (1, 1), (0, 1)], ids=["all", "more", "own"])
def test_counts_begin_anew_in_each_run(rows, begun, room, sentences):
    """Whether a batch has set them or not, and whatever the run before made of them.

    There is room for some more rows, or the batch had some more sentences, which have left.
    """
    device = torch.device("cpu")
    tensors = StaticTensors(
        Sizes(rows + sentences, 1, 4, 64), Shape(1, 1, 4, torch.float32, device), Graphs.of(device)
    )
    static = StaticRows(tensors, rows + room)
    source = {"src_tokens": torch.full((rows, 2), 5), "src_lengths": torch.full((rows,), 2)}
    limits = Constraints(PAD, UNK, EOS, 0.0, 1, 60)
    if not begun:
        static.lengths.fill_(7)
    for chosen in (0, 2, 2):
        if chosen == 0 and begun:
            tensors.counts.fill_(7)  # by the batch before
            tensors.begin()
            tensors.begun = True
            if static._counts is not tensors.counts:
                static._counts.fill_(7)
        decoded = Rows(Batch(source, [], EOS, limits))
        decoded.append(torch.full((rows, 2), 9), torch.zeros(rows, 2), torch.full((rows,), chosen))
        decoded.sync_lengths([chosen] * rows, [[9] * chosen] * rows)
        static.read(decoded)
        assert static.lengths.tolist() == [chosen] * rows + [0] * room
        assert static.alive.tolist() == [1] * rows + [0] * room
        assert not static.held.any() and not static.runs.any()
        for counts in (static.lengths, static.alive, static.held, static.runs):
            counts.fill_(7)
