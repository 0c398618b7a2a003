"""Checkpoints of tiny models whose matrices have several pages, and what of them is in memory."""

import mmap
from argparse import Namespace

import numpy as np
import torch
from fairseq import checkpoint_utils
from fairseq.models.transformer import base_architecture

from specdec_plugin.fairseq_compat.checkpoints import save_untrained
from specdec_plugin.fairseq_compat.held_in_half import memory_of

from . import tiny

SYMBOLS = tiny.dictionary(500)
SIZES = dict(encoder_embed_dim=64, decoder_embed_dim=64, encoder_ffn_embed_dim=128)


def model(seed=0):
    """A random model."""
    return tiny.model(seed, symbols=SYMBOLS, **SIZES)


def architecture():
    """fairseq's options of such models."""
    arguments = Namespace(
        arch="transformer", _name="transformer", encoder_layers=1, decoder_layers=2,
        encoder_attention_heads=2, decoder_attention_heads=2, max_source_positions=64,
        max_target_positions=64, share_all_embeddings=True, **SIZES,
    )  # fmt: skip
    base_architecture(arguments)
    return arguments


def save(saved, path, **options):
    """Write a checkpoint; its path."""
    save_untrained(saved.state_dict(), architecture(), str(path))
    torch.save(torch.load(path, weights_only=True), path, **options)
    return str(path)


def task_of(decoding):
    """A task that decodes so."""
    task = tiny.task(SYMBOLS)
    task.cfg.decoding = decoding
    return task


def load(path, decoding="greedy"):
    """The model of a checkpoint, as fairseq loads it for a task."""
    (found,), _, _ = checkpoint_utils.load_model_ensemble_and_task([path], task=task_of(decoding))
    return found.eval()


def pages_in_memory(parameter):
    """How many whole pages of a parameter this process has in memory."""
    parameter = memory_of(parameter)
    begin = -(-parameter.data_ptr() // mmap.PAGESIZE)
    end = (parameter.data_ptr() + parameter.nbytes) // mmap.PAGESIZE
    with open("/proc/self/pagemap", "rb") as pages:
        pages.seek(8 * begin)
        bits = np.frombuffer(pages.read(8 * (end - begin)), np.uint64)
    return int((bits >> np.uint64(63)).sum())
