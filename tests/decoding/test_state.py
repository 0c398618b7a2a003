"""Parts of a batch: rows in a range are not copied."""

from typing import Any, Sequence

import pytest
import torch
from torch import Tensor

from specdec_plugin.decoding.constraints import Constraints
from specdec_plugin.decoding.state import Batch, Rows

ROWS, SOURCE, DIM = 6, 4, 3


@pytest.fixture
def batch() -> Batch:
    encoded = torch.randn(ROWS, SOURCE, DIM).transpose(0, 1)
    padding = torch.rand(ROWS, SOURCE) < 0.5
    return Batch(
        {"src_tokens": torch.randint(9, (ROWS, SOURCE)), "src_lengths": torch.arange(ROWS)},
        [{"encoder_out": [encoded], "encoder_padding_mask": [padding]}],
        bos=2,
        constraints=Constraints(1, 3, 2, 0.0, 1, 9, torch.randint(9, (ROWS, 2)), 0, None),
        target=torch.randint(9, (ROWS, 5)),
    )


def tensors_of(batch: Batch) -> Sequence[Tensor]:
    """With the rows first."""
    out: Any = batch.encoder_outs[0]
    assert batch.constraints.prefix is not None and batch.target is not None
    encoded = out["encoder_out"][0].transpose(0, 1)
    parts = [*batch.net_input.values(), encoded, out["encoder_padding_mask"][0]]
    return [*parts, batch.constraints.prefix, batch.target]


def test_a_range_is_what_its_indices_are(batch: Batch) -> None:
    part, same = batch.left(range(2, 5)), batch.left([2, 3, 4])
    for one, other, all_rows in zip(
        tensors_of(part), tensors_of(same), tensors_of(batch), strict=True
    ):
        assert torch.equal(one, other) and torch.equal(one, all_rows[2:5])
        assert one.untyped_storage().data_ptr() == all_rows.untyped_storage().data_ptr()
    inner = batch.left(range(1, 5)).left(range(1, 3)).left([1])
    for one, all_rows in zip(tensors_of(inner), tensors_of(batch), strict=True):
        assert torch.equal(one, all_rows[3:4])


def test_all_rows_are_the_batch(batch: Batch) -> None:
    assert batch.left(range(ROWS)) is batch and batch.left([*range(ROWS)]) is batch
    every_second = tensors_of(batch.left(range(0, ROWS, 2)))
    for one, all_rows in zip(every_second, tensors_of(batch), strict=True):
        assert torch.equal(one, all_rows[::2])


def test_a_hypothesis_does_not_keep_the_memory_of_all_rows(batch: Batch) -> None:
    rows = Rows(batch)
    counts = torch.arange(1, ROWS + 1)
    drawn = torch.randint(9, (ROWS, ROWS))
    rows.append(drawn, torch.rand(ROWS, ROWS), counts)
    rows.sync_lengths(counts.tolist())
    for row in range(ROWS):
        found = rows.hypothesis(row)
        assert found["tokens"].equal(drawn[row, : row + 1])
        for each in found.values():
            assert each.untyped_storage().nbytes() == each.nbytes
