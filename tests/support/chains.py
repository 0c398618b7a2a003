"""Random chain heads behind random decoders, and how well tokens follow their formulas."""

import math

import torch
from torch import nn

from specdec_plugin.models.chain_head import ChainHead
from tests.support import architectures
from tests.support.architectures import build_model


def random_head(monkeypatch, vocabulary, units, dim=16, biased=False, device="cpu"):
    """A head and its decoder, (head, decoder): scores lie far apart."""
    monkeypatch.setattr(architectures, "VOCABULARY", vocabulary)
    sizes = {"decoder_embed_dim": dim, "encoder_embed_dim": dim}
    decoder = build_model(**sizes).decoder
    projection = nn.Linear(dim, vocabulary, bias=biased)
    nn.init.normal_(projection.weight)
    decoder.output_projection = projection
    head = ChainHead(dim, dim, units)
    nn.init.normal_(head.out.weight, std=units**-0.5)
    nn.init.normal_(head.out.bias)
    return head.eval().to(device), decoder.eval().to(device)


@torch.no_grad()
def margins(head, decoder, states, last, tokens):
    """(rows, k) by how much the scores of tokens exceed all others but padding.

    They are computed in float32, as in training: the tokens before each position are known.
    """
    before = torch.cat([last.unsqueeze(1), tokens[:, :-1]], dim=1)
    vectors = decoder.embed_scale * decoder.embed_tokens(before)
    scores = decoder.output_layer(head(states.float(), vectors))
    scores[..., decoder.padding_idx] = -math.inf  # never chosen
    index = tokens.unsqueeze(2)
    others = scores.scatter(2, index, -math.inf).amax(2)
    return scores.gather(2, index).squeeze(2) - others


def assert_follows(head, decoder, states, last, found, expected, tolerance):
    """Found tokens are the best of their positions, and the expected ones until one is close."""
    assert found.dtype == torch.long and found.shape == expected.shape
    assert margins(head, decoder, states, last, found).min() > -tolerance
    clear = margins(head, decoder, states, last, expected) > tolerance
    clear = clear.long().cumprod(1).bool()
    assert clear.float().mean() > 0.3
    assert torch.equal(found[clear], expected[clear])
