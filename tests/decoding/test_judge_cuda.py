"""Triton's judge of drafts against PyTorch's operators.

Without a GPU it is interpreted, if TRITON_INTERPRET=1 was set before PyTorch was imported.
"""

import pytest
import torch

from specdec_plugin.decoding.acceptance import judge_best
from specdec_plugin.decoding.judge_cuda import judge_on
from specdec_plugin.decoding.state import Draft
from specdec_plugin.decoding.static_rows import StaticRows
from specdec_plugin.engine.graphs.capture import Graphs
from specdec_plugin.engine.graphs.tensors import Shape, Sizes, StaticTensors
from tests.support.kernels import run_kernels

EOS = 2


@pytest.mark.parametrize("rows, drafted", [(1, 0), (1, 5), (4, 3), (3, 11)])
@pytest.mark.usefixtures("seeded")
def test_what_stands_is_what_pytorch_lets_stand(rows, drafted, monkeypatch):
    """Drafts of several lengths, that are right or not, with ends, in rows alive or not."""
    device = run_kernels(monkeypatch)
    judge_on.cache_clear()
    judge = judge_on(device)
    judge_on.cache_clear()
    assert judge is not None
    shape = Shape(1, 1, 4, torch.float32, device)
    tensors = StaticTensors(Sizes.of(rows, 1, 4, 64), shape, Graphs.of(device))
    mine, theirs = StaticRows(tensors, rows), StaticRows(tensors, rows)
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
        for name in ("inputs", "scores", "lengths", "alive"):
            assert torch.equal(getattr(mine, name), getattr(theirs, name)), (turn, name)
        tables = [each.outcomes(drafted + 1).table for each in (mine, theirs)]
        assert torch.equal(*tables), turn
