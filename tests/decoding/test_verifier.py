"""How many threads compute where PyTorch's operators and the kernels take turns."""

import sys

import pytest
import torch

from specdec_plugin.decoding import verifier
from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.engine import (
    NativeBackend,
    TorchBackend,
    build_engine,
    native_layers,
    threads,
)
from specdec_plugin.methods.beam.search import BeamSearch
from tests.support import tiny
from tests.support.nbest import reference
from tests.support.search import MODELS, SYMBOLS, assert_same

SAMPLE = tiny.sample([5, 3, 4], 1)
#: Threads of the kernels, and of PyTorch's operators.
ALONE, TOGETHER = (2, 1), (2, 2)


@pytest.fixture
def seen(monkeypatch):
    """Threads that the kernels and that PyTorch's operators have."""
    if not sys.platform.startswith("linux"):
        pytest.skip("only Linux tells which libraries a process has")
    before, found = torch.get_num_threads(), []
    torch.set_num_threads(2)

    def noted(owner, name, place):
        method = getattr(owner, name)

        def noting(*given, **named):
            result = method(*given, **named)
            found.append((place, torch.get_num_threads() if place else result))
            return result

        monkeypatch.setattr(owner, name, noting)

    noted(native_layers, "kernel_threads", 0)
    noted(torch, "logsumexp", 1)
    noted(Constraints, "apply", 1)
    yield lambda: tuple({count for place, count in found if place == each} for each in (0, 1))
    torch.set_num_threads(before)


def decode(models, backend):
    """A search with one beam that PyTorch's operators make."""
    statistics = Statistics()
    lengths = Lengths(max_len_b=12, max_positions=13, match_source_len=True)
    engines = [build_engine(each, backend=backend) for each in models]
    verifying = verifier.Verifier(engines, statistics)
    loop = BeamSearch(verifying, statistics, lengths, 1)
    ours = ParallelGenerator(models, SYMBOLS, loop, statistics, lengths)
    return [row[0] for row in ours.generate(models, SAMPLE)]


@pytest.mark.parametrize(
    "backend, few, expected",
    [
        (NativeBackend(), 1 << 20, ALONE),
        (NativeBackend(), 0, TOGETHER),
        (TorchBackend(), 1 << 20, TOGETHER),
    ],
    ids=["few scores", "many scores", "no kernels"],
)
def test_operators_leave_the_processors_to_the_kernels(seen, monkeypatch, backend, few, expected):
    if isinstance(backend, NativeBackend) and backend.unsupported() is not None:
        pytest.skip("there is no compiler for the kernels")
    monkeypatch.setattr(threads, "_FEW", few)
    found = decode(MODELS[:2], backend)
    kernels, operators = seen()
    assert kernels == {expected[0]}  # the encoder's at least
    assert expected[1] in operators and (few == 0 or operators == {expected[1]})
    assert torch.get_num_threads() == 2
    wanted = reference(MODELS[:2], SAMPLE, 1, max_len_b=12, match_source_len=True)
    assert_same(found, [row[0] for row in wanted])
