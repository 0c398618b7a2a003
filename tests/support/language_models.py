"""Tiny random language models."""

from argparse import Namespace

import torch
from fairseq.data import TruncatedDictionary
from fairseq.models.fconv_lm import FConvLanguageModel
from fairseq.models.fconv_lm import base_lm_architecture as convolutional
from fairseq.models.lstm_lm import LSTMLanguageModel
from fairseq.models.lstm_lm import base_architecture as recurrent
from fairseq.models.transformer_lm import TransformerLanguageModel, base_lm_architecture
from fairseq.tasks.language_modeling import LanguageModelingConfig, LanguageModelingTask

from specdec_plugin.fairseq_compat.checkpoints import save_untrained

from . import tiny

#: By name: a class of fairseq's, what fills in its options, and options.
KINDS = {
    "transformer": (TransformerLanguageModel, base_lm_architecture, {}),
    "learned": (TransformerLanguageModel, base_lm_architecture, {"decoder_learned_pos": True}),
    "adaptive": (
        TransformerLanguageModel,
        base_lm_architecture,
        {"adaptive_softmax_cutoff": "6,10", "share_decoder_input_output_embed": False},
    ),
    "lstm": (
        LSTMLanguageModel,
        recurrent,
        {"decoder_hidden_size": 16, "decoder_out_embed_dim": 16},
    ),
    "convolutional": (FConvLanguageModel, convolutional, {"decoder_layers": "[(16, 3)] * 2"}),
}
_TRANSFORMER = {
    "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_embed_dim": 24,
    "share_decoder_input_output_embed": True, "max_target_positions": 64,
}  # fmt: skip


def options(kind, **given):
    """The class, and fairseq's options of such a model."""
    architecture, fill, own = KINDS[kind]
    sizes = {"decoder_embed_dim": 16, "tokens_per_sample": 64, "dropout": 0.0, "criterion": ""}
    plain = _TRANSFORMER if architecture is TransformerLanguageModel else {}
    named = Namespace(**{**sizes, **plain, **own, **given})
    fill(named)
    return architecture, named


def model(kind="transformer", seed=0, symbols=None, **given):
    """A model in evaluation mode whose weights are large enough to make its words vary."""
    torch.manual_seed(seed)
    architecture, named = options(kind, **given)
    symbols = symbols or tiny.dictionary()
    few = given.get("output_dictionary_size")
    outputs = symbols if few is None else TruncatedDictionary(symbols, few)
    task = LanguageModelingTask(LanguageModelingConfig(), symbols, outputs)
    built = architecture.build_model(named, task)
    with torch.no_grad():
        for weight in built.parameters():
            if weight.dim() > 1:
                weight.mul_(2.0)
    return built.eval()


def save(path, symbols, kind="transformer", seed=0, **given):
    """Write the checkpoint of such a model, as fairseq-train names its options; its path."""
    _, named = options(kind, **given)
    named.arch = named._name = "transformer_lm"
    named.task, named.data = "language_modeling", str(path.parent)
    save_untrained(model(kind, seed, symbols, **given).state_dict(), named, str(path))
    return str(path)
