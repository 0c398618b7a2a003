"""Tiny trained drafters, and what they draft by the forward pass of training."""

import torch

from specdec_plugin.data.block_masking import Blocks
from specdec_plugin.models.block_nat import BlockNATModel, block_nat

from . import tiny

K = 4


class TinyDrafter(BlockNATModel):
    """Built from few arguments."""

    @classmethod
    def build_model(cls, args, task):
        block_nat(args)
        return super().build_model(args, task)


def drafter_model(form, share=False, seed=5, block_size=K, **arguments):
    return tiny.model(
        seed,
        TinyDrafter,
        block_size=block_size,
        prefix_attention=form,
        share_encoder=share,
        share_all_embeddings=False,
        **arguments,
    )


def one_by_one(model, encoder_out, row, chosen, block_size=K):
    """Drafted tokens after ``chosen``, and scores, by the forward pass that training uses."""
    prefix = torch.tensor([[2, *chosen]])
    blocks = Blocks(
        starts=torch.tensor([[len(chosen)]]),
        targets=torch.zeros(1, 1, block_size, dtype=torch.long),
        scored=torch.ones(1, 1, block_size, dtype=torch.bool),
    )
    one = {
        "encoder_out": [encoder_out["encoder_out"][0][:, row : row + 1]],
        "encoder_padding_mask": [encoder_out["encoder_padding_mask"][0][row : row + 1]],
    }
    with torch.no_grad():
        features = model.decoder.block_features(prefix, one, blocks)
        # Masked after they are normalised, as fairseq does it.
        scores = model.decoder.output_layer(features)[0, 0].log_softmax(-1)
    scores[:, 1] = -torch.inf
    if not chosen:
        scores[0, 2] = -torch.inf
    best = scores.max(-1)
    return best.indices.tolist(), best.values


def chained_model(form="causal", share=False):
    model = drafter_model(form, share, chain_units=24)
    with torch.no_grad():  # a new head changes nothing; this one shall
        torch.nn.init.normal_(model.decoder.chain.out.weight, std=0.3)
    return model
