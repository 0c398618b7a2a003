"""Triton's judge of drafts against PyTorch's operators.

Without a GPU it is interpreted, if TRITON_INTERPRET=1 was set before PyTorch was imported.
"""

from unittest import mock

import pytest
import torch
from fairseq.utils import move_to_cuda

from specdec_plugin.decoding.acceptance import judge_best
from specdec_plugin.decoding.judge_cuda import judge_on
from specdec_plugin.decoding.state import Draft
from specdec_plugin.decoding.static_rows import StaticRows
from specdec_plugin.engine import GraphBackend
from specdec_plugin.engine.graphs.capture import Graphs
from specdec_plugin.engine.graphs.tables import Tables
from specdec_plugin.engine.graphs.tensors import Shape, Sizes, StaticTensors
from tests.support import methods as ways
from tests.support import tiny
from tests.support.kernels import run_kernels
from tests.support.search import assert_same, reference

EOS = 2


@pytest.fixture
def device(monkeypatch):
    """Where the kernels run."""
    judge_on.cache_clear()
    yield run_kernels(monkeypatch)
    judge_on.cache_clear()


@pytest.mark.parametrize("rows, drafted", [(1, 0), (1, 5), (4, 3), (3, 11)])
@pytest.mark.usefixtures("seeded")
def test_what_stands_is_what_pytorch_lets_stand(rows, drafted, device):
    """Drafts of several lengths, that are right or not, with ends, in rows alive or not."""
    judge = judge_on(device)
    assert judge is not None
    shape = Shape(1, 1, 4, torch.float32, device)
    sizes, graphs = Sizes.of(rows, 1, 4, 64), Graphs.of(device)
    mine, theirs = (StaticRows(StaticTensors(sizes, shape, graphs), rows) for _ in range(2))
    for turn in range(30):
        best = torch.randint(EOS, 5, (rows, drafted + 1), device=device)
        scored = torch.randn(rows, drafted + 1, device=device)
        tokens = torch.where(torch.rand(rows, drafted, device=device) < 0.7, best[:, :drafted], 4)
        draft = Draft(tokens, torch.randint(drafted + 1, (rows,), device=device))
        lengths = torch.randint(40, (rows,), device=device)
        alive = torch.randint(2, (rows,), device=device)
        for each in (mine, theirs):
            each.lengths.copy_(lengths)
            each.alive.copy_(alive)
        judge.append(mine, best, scored, draft, EOS)
        steps = lengths.unsqueeze(1) + torch.arange(drafted + 1, device=device)
        theirs.append(judge_best(best, scored, draft, EOS), draft.lengths, steps)
        assert mine.runs.tolist() == [turn + 1] * rows
        for name in ("inputs", "scores", "lengths", "alive", "held"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name)), (turn, name)
        if device.type == "cuda":
            torch.cuda.synchronize()
        ring = mine.outcomes(drafted + 1).host.ring
        assert torch.equal(ring[turn % 2], theirs.outcomes(drafted + 1).table.cpu()), turn


def test_the_host_reads_what_the_kernel_wrote(device):
    """Over several batches, one of which is interrupted, and some rows of which end early."""
    model, sample = tiny.model(1), tiny.sample([3, 6, 1], 5)
    expected = reference([model], sample, max_len_b=9)
    model, sample = model.to(device), move_to_cuda(sample, device)
    ours = ways.generator("greedy", model, GraphBackend(), {"max_len_b": 9})
    for turn in range(3):
        if turn == 1:
            with mock.patch.object(Tables, "pop", side_effect=KeyboardInterrupt):
                with pytest.raises(KeyboardInterrupt):
                    ours.generate([model], sample)
        assert_same([row[0] for row in ours.generate([model], sample)], expected)
    assert ours.loop.step._captured.writes_outcomes
