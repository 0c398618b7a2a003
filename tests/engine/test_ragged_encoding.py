"""An encoder's output without padding against the padded one."""

import pytest
import torch

from specdec_plugin.engine import NativeBackend
from specdec_plugin.engine.encoder import FastEncoder
from specdec_plugin.engine.ragged_encoding import RaggedEncoding
from tests.support.architectures import VOCABULARY, build_model

LENGTHS = [7, 2, 5, 1]


def encoded(left):
    """The output for a batch, and fairseq's padded one."""
    model = build_model()
    tokens = torch.ones(len(LENGTHS), max(LENGTHS), dtype=torch.long)
    for row, length in zip(tokens, LENGTHS, strict=True):
        real = torch.randint(4, VOCABULARY, (length,))
        (row[-length:] if left else row[:length]).copy_(real)
    batch = {"src_tokens": tokens, "src_lengths": torch.tensor(LENGTHS)}
    with torch.no_grad():
        expected = model.encoder.forward_torchscript(batch)
    return FastEncoder(model.encoder, NativeBackend())(batch), expected


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize(
    "rows", [slice(0, 4), slice(1, 3), torch.tensor([2]), torch.tensor([3, 0, 0, 1])]
)
def test_chosen_rows_are_padded_as_by_fairseq(left, rows):
    found, expected = encoded(left)
    assert isinstance(found, RaggedEncoding)
    assert found.vectors.size(0) == sum(LENGTHS)
    mask, out = expected["encoder_padding_mask"][0][rows], expected["encoder_out"][0][:, rows]
    used = ~mask.all(0)  # columns
    equal(found.select(rows), mask, out)
    equal(found.select(rows).trimmed(), mask[:, used], out[used])
    assert set(found) == set(expected) and len(found) == len(expected)


def equal(found, mask, out):
    """Whether a ragged output is (src, rows, dim) where (rows, src) says that it is no padding."""
    assert [each.tolist() for each in found["encoder_padding_mask"]] == (
        [mask.tolist()] if mask.any() else []
    )
    torch.testing.assert_close(
        found["encoder_out"][0], out.masked_fill(mask.t().unsqueeze(2), 0), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("left", [True, False])
def test_spans_find_the_vectors_of_chosen_rows(left):
    found, expected = encoded(left)
    chosen = found.select(torch.tensor([2, 0, 2]))
    spans = chosen.spans
    assert spans.lengths.tolist() == [5, 7, 5] and spans.starts.tolist() == [0, 5, 12, 17]
    real = ~expected["encoder_padding_mask"][0]
    for row, begin in zip((2, 0, 2), spans.begins.tolist(), strict=True):
        own = found.vectors[begin : begin + LENGTHS[row]]
        torch.testing.assert_close(
            own, expected["encoder_out"][0][real[row], row], atol=1e-5, rtol=1e-5
        )
