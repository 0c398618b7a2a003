"""Tiny random Transformers whose outputs vary, and batches for them."""

from argparse import Namespace
from typing import List

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel
from fairseq.tasks.translation import TranslationConfig, TranslationTask


def dictionary(words=12):
    """4 special symbols and some words."""
    symbols = Dictionary()
    for number in range(words):
        symbols.add_symbol(f"w{number}")
    return symbols


def task(symbols=None):
    symbols = symbols or dictionary()
    return TranslationTask(TranslationConfig(), symbols, symbols)


def model(seed=0, architecture=TransformerModel, symbols=None, **arguments):
    """A model in evaluation mode whose weights are large enough to make its words vary."""
    torch.manual_seed(seed)
    defaults = dict(
        encoder_layers=1, decoder_layers=2, encoder_embed_dim=16, decoder_embed_dim=16,
        encoder_ffn_embed_dim=24, encoder_attention_heads=2, decoder_attention_heads=2,
        max_source_positions=64, max_target_positions=64, share_all_embeddings=True,
    )  # fmt: skip
    built = architecture.build_model(Namespace(**{**defaults, **arguments}), task(symbols))
    with torch.no_grad():
        for weight in built.parameters():
            if weight.dim() > 1:
                weight.mul_(2.0)
    return built.eval()


def sample(lengths: List[int], seed=0, words=12):
    """A left-padded batch of random sources, as fairseq makes it."""
    generator = torch.Generator().manual_seed(seed)
    width = max(lengths) + 1
    tokens = torch.full((len(lengths), width), 1)
    for row, length in enumerate(lengths):
        tokens[row, -1] = 2
        drawn = torch.randint(4, 4 + words, (length,), generator=generator)
        tokens[row, width - 1 - length : -1] = drawn
    net_input = {
        "src_tokens": tokens,
        "src_lengths": torch.tensor(lengths) + 1,
        "prev_output_tokens": torch.full((len(lengths), 1), 2),
    }
    return {"id": torch.arange(len(lengths)), "net_input": net_input}
