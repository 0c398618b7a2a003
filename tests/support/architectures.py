"""Random tiny models of fairseq's own architectures, and what tests ask of them."""

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

from specdec_plugin.engine import UncachedDecoder

VOCABULARY = 23  # with the four special symbols

TINY = {
    "transformer": {
        "encoder_embed_dim": 16,
        "encoder_ffn_embed_dim": 24,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "decoder_embed_dim": 16,
        "decoder_ffn_embed_dim": 24,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "max_source_positions": 40,
        "max_target_positions": 40,
    },
    "lstm": {
        "encoder_embed_dim": 12,
        "decoder_embed_dim": 12,
        "encoder_hidden_size": 16,
        "decoder_hidden_size": 16,
        "decoder_out_embed_dim": 12,
        "encoder_bidirectional": True,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "criterion": "cross_entropy",  # fairseq's LSTM asks for it; "adaptive_loss" is the other
    },
    "fconv": {
        "encoder_embed_dim": 12,
        "decoder_embed_dim": 12,
        "decoder_out_embed_dim": 12,
        "encoder_layers": "[(16, 3)] * 2",
        "decoder_layers": "[(16, 3)] * 2",
        "decoder_attention": "True",
        "max_source_positions": 40,
        "max_target_positions": 40,
    },
    "lightconv": {
        "encoder_embed_dim": 16,
        "encoder_conv_dim": 16,
        "encoder_ffn_embed_dim": 24,
        "encoder_layers": 1,
        "encoder_attention_heads": 2,
        "encoder_conv_type": "dynamic",
        "encoder_kernel_size_list": [3],
        "weight_softmax": True,
        "decoder_embed_dim": 16,
        "decoder_conv_dim": 16,
        "decoder_ffn_embed_dim": 24,
        "decoder_layers": 2,
        "decoder_attention_heads": 2,
        "decoder_kernel_size_list": [3, 7],
        "max_source_positions": 40,
        "max_target_positions": 40,
    },
}


for name in ("nonautoregressive_transformer", "cmlm_transformer", "levenshtein_transformer"):
    TINY[name] = {**TINY["transformer"], "encoder_layers": 1}


def build_model(arch: str = "transformer", **options: Any) -> Any:
    """A random model in evaluation mode; ``options`` as on fairseq's command line."""
    dictionary = Dictionary()
    for number in range(VOCABULARY - len(dictionary)):
        dictionary.add_symbol(f"w{number}")
    args = Namespace(**{**TINY[arch], **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = ARCH_MODEL_REGISTRY[arch].build_model(args, task)
    with torch.no_grad():  # fairseq starts biases at 0 and norms at 1, which would hide mistakes
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model.eval()


def random_tokens(rows: int, length: int) -> torch.Tensor:
    """(rows, length) of ordinary symbols behind the end of sentence that fairseq starts with."""
    tokens = torch.randint(4, VOCABULARY, (rows, length))
    tokens[:, 0] = 2
    return tokens


def moved(encoded: Any, device: torch.device) -> Any:
    """An encoder's output on a device."""
    return {
        key: [each.to(device) for each in value] if isinstance(value, list) else value
        for key, value in encoded.items()
    }


def encode(model: Any, lengths: Any = (7, 5, 4)) -> Any:
    """The encoder's output for random left-padded sources; LSTMs want the longest first."""
    source = torch.randint(4, VOCABULARY, (len(lengths), max(lengths)))
    for row, length in enumerate(lengths):
        source[row, : max(lengths) - length] = 1
    with torch.no_grad():
        return model.encoder(source, torch.tensor(lengths))


def full_logits(model: Any, tokens: torch.Tensor, encoder_out: Any) -> torch.Tensor:
    """fairseq's own forward pass, not incremental: (rows, length, vocabulary)."""
    with torch.no_grad():
        return model.decoder(tokens, encoder_out=encoder_out)[0]


def logits_of(engine: Any, state: Any, tokens: torch.Tensor) -> torch.Tensor:
    """Scores of what follows each of the new tokens: (rows, new, vocabulary)."""
    if isinstance(engine, UncachedDecoder):
        return engine.logits(state, tokens)
    hidden = engine.forward(state, engine.embedding.of_tokens(tokens, state.lengths, state.longest))
    return engine.projection.scores(hidden).values


def feed_in_steps(engine: Any, state: Any, tokens: torch.Tensor, widths: Any) -> torch.Tensor:
    """Logits of ``tokens``, fed in steps of these widths with everything accepted."""
    outputs, start = [], 0
    for width in widths:
        outputs.append(logits_of(engine, state, tokens[:, start : start + width]))
        start += width
        state.keep(torch.full((tokens.size(0),), start), start)
    assert start == tokens.size(1)
    return torch.cat(outputs, dim=1)
