"""Sources to encode, and what fairseq makes of them."""

import torch

from .architectures import VOCABULARY


def net_input(lengths, left=True):
    tokens = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)))
    for row, length in enumerate(lengths):
        pads = slice(0, max(lengths) - length) if left else slice(length, None)
        tokens[row, pads] = 1
    return {"src_tokens": tokens, "src_lengths": torch.tensor(lengths)}


def assert_equals_fairseqs(model, batch, found):
    """The same vectors as fairseq's own encoder gives where nothing is padded; its output."""
    with torch.no_grad():
        expected = model.encoder.forward_torchscript(batch)
    real = batch["src_tokens"].ne(1).t()
    torch.testing.assert_close(
        found["encoder_out"][0][real], expected["encoder_out"][0][real], atol=1e-5, rtol=1e-5
    )
    return expected
