"""Tiny blockwise Transformers of every form, and what their heads compute."""

import math

import torch
from fairseq.data import Dictionary

from specdec_plugin.decoding.acceptance import Distance, MinBlock, TopBeta
from specdec_plugin.decoding.generator import Lengths, ParallelGenerator
from specdec_plugin.decoding.loop import DecodingLoop
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.steps import VerifiedStep
from specdec_plugin.decoding.symbols import numbers_of
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import build_engine
from specdec_plugin.methods.blockwise.drafter import BlockwiseDrafter
from specdec_plugin.methods.blockwise.proposals import Proposals
from specdec_plugin.models.blockwise_transformer import (
    BlockwiseTransformerModel,
    blockwise_transformer,
)

from . import tiny

K, EOS, PAD = 5, 2, 1


def numbered(words=12):
    """4 special symbols and numbers."""
    symbols = Dictionary()
    for number in range(words):
        symbols.add_symbol(str(3 * number))
    return symbols


SYMBOLS = numbered()
NUMBERS = numbers_of(SYMBOLS)


class TinyBlockwise(BlockwiseTransformerModel):
    """Built from few arguments."""

    @classmethod
    def build_model(cls, args, task):
        blockwise_transformer(args)
        return super().build_model(args, task)


def blockwise_model(seed=0, heads="joint", k=K, symbols=SYMBOLS, **arguments):
    """Heads that differ from the base, but often say what it says."""
    arguments = {"block_size": k, "heads": heads, **arguments}
    model = tiny.model(seed, TinyBlockwise, symbols, **arguments)
    with torch.no_grad():
        model.heads.outer.weight.normal_(std=0.1)
    return model


FORMS = [
    ("joint", False),
    ("separate", False),
    ("joint", True),
    ("separate", True),
    ("source", False),
]
#: Some of their sentences end before the limit, and some drafts are right.
SEEDS = [21, 0, 21, 0, 0]
BLOCKWISE = {
    form: blockwise_model(seed, form[0], learned_first_head=form[1])
    for seed, form in zip(SEEDS, FORMS, strict=True)
}
RULES = {
    "exact": TopBeta(),
    "top-k": TopBeta(3),
    "distance": Distance(NUMBERS, 6.0),
    "least": MinBlock(TopBeta(), 3, EOS),
    "least top-k": MinBlock(TopBeta(2), K, EOS),
    "least distance": MinBlock(Distance(NUMBERS, 3.0), 2, EOS),
}


def generator(model, rule, k=K, floor=0.0, verifying=None, dtype=None, backend=None, **lengths):
    statistics = Statistics()
    engine = build_engine(model, backend=backend)
    least = rule.min_block - 1 if isinstance(rule, MinBlock) else 0
    proposals, verifier = Proposals(model.heads, engine, k, dtype), Verifier([engine], statistics)
    drafter = BlockwiseDrafter(proposals, verifier, EOS, floor, least, statistics)
    step = VerifiedStep(verifier, rule, verifying)
    limits = Lengths(max_positions=64, **lengths)
    loop = DecodingLoop(drafter, step, statistics, keep_history=True)
    return ParallelGenerator([model], model.decoder.dictionary, loop, statistics, limits)


def head_state(model, state, head, encoder_out, row=0):
    """z_i of one state, (dim,); those that read the source do so a reader at a time."""
    heads = model.heads
    if head == 1 or not heads.readers:
        return heads(state, [head])[0]
    attention = model.decoder.layers[-1].encoder_attn
    encoded, padding = encoder_out["encoder_out"][0][:, row], encoder_out["encoder_padding_mask"]
    if padding:
        encoded = encoded[~padding[0][row]]
    place, size = head - heads.first, heads.source_dim // heads.readers
    query = heads.query(state).view(-1, heads.source_dim)[place]
    known = [state]
    for part in range(0, heads.source_dim, size):
        keys = attention.k_proj(encoded)[:, part : part + size]
        values = attention.v_proj(encoded)[:, part : part + size]
        shares = (keys @ query[part : part + size] / math.sqrt(size)).softmax(0)
        known.append(shares @ values)
    units = heads.inner(torch.cat(known)).relu().view(-1, heads.hidden)[place]
    outer = heads.outer.weight.view(-1, heads.dim, heads.hidden)[place]
    return state + outer @ units + heads.outer.bias.view(-1, heads.dim)[place]
