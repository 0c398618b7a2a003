"""PyTorch's default type is the program's own affair: outputs and scores stay as they are.

The kernels write float32 into tensors that Python makes for them. Those of the default type would
be read as other numbers, or be too small. Libraries set that type while they load a model, for
all threads.
"""

import contextlib

import pytest
import torch

from tests.support import methods as ways
from tests.support import tiny
from tests.support.conformance import LENGTHS, PLAIN, model_of


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def decoded(way, backend, options, dtype):
    """What a new generator finds while this is the default type."""
    samples = [tiny.sample(LENGTHS[rows], words=PLAIN.words) for rows in (1, 8)]
    model = model_of(way, PLAIN)
    generator = ways.generator(way, model, backend, {**PLAIN.options(), **options})
    with default_dtype(dtype):
        return [found for sample in samples for found in generator.generate([model], sample)]


DRAWING = ["greedy", "certified", "self-draft", "chain", "separate heads", "jacobi"]


@pytest.mark.parametrize(
    "way, options",
    [(way, {}) for way in (*DRAWING, "nat", "beam")]
    + [(way, {"sampling": True, "seed": 3}) for way in DRAWING],
    ids=str,
)
def test_the_default_type_changes_nothing(way, backend, options):
    if way == "self-draft" and not ways.can_draft_for_itself(backend):
        pytest.skip("only the kernels draft with the model itself")
    wanted = decoded(way, backend, options, torch.float32)
    for dtype in (torch.float64, torch.float16, torch.bfloat16):
        found = decoded(way, backend, options, dtype)
        for mine, theirs in zip(found, wanted, strict=True):
            for one, other in zip(mine, theirs, strict=True):
                assert torch.equal(one["tokens"], other["tokens"])
                scores = one["positional_scores"]
                assert scores.dtype == torch.float32
                torch.testing.assert_close(scores, other["positional_scores"], atol=1e-5, rtol=0)
