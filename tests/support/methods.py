"""Every method of ``--decoding`` with tiny models, as the command line would build it."""

from argparse import Namespace
from unittest import mock

from specdec_plugin.methods import build
from specdec_plugin.methods import setup as method_setup
from specdec_plugin.methods.registry import config_class

from . import tiny
from .drafters import drafter_model
from .heads import SYMBOLS as NUMBERS
from .heads import blockwise_model

DecodingConfig = config_class()

#: Numbers, so that ``--acceptance distance`` has some to compare.
SYMBOLS = NUMBERS
#: An untrained drafter is sure of nothing, so that the default would end its drafts at once.
ALL_OF_A_BLOCK = {"draft_confidence": 1e-9}
#: The flags of each way to decode; drafts are made for all rows of a batch.
METHODS = {
    "greedy": {"decoding": "greedy"},
    "beam": {"decoding": "beam"},
    "auto": {"decoding": "auto", "draft_rows": 0},
    "certified": {"decoding": "greedy", "certified_projection": True},
    "self-draft": {"decoding": "specdec", "draft_rows": 0},
    "relaxed": {"decoding": "specdec", "draft_rows": 0, "top_beta": 3},
    "block-nat": {"decoding": "specdec", "draft_rows": 0, **ALL_OF_A_BLOCK},
    "chain": {"decoding": "specdec", "draft_rows": 0, "drafter_dtype": "int8", **ALL_OF_A_BLOCK},
    "confident": {"decoding": "specdec", "draft_rows": 0, "draft_confidence": 0.02},
    "shared encoder": {"decoding": "specdec", "draft_rows": 0, **ALL_OF_A_BLOCK},
    "nat": {"decoding": "nat"},
    "joint heads": {"decoding": "blockwise", "draft_rows": 0},
    "separate heads": {"decoding": "blockwise", "draft_rows": 0, "drafter_dtype": "float32"},
    "source heads": {"decoding": "blockwise", "draft_rows": 0},
    "jacobi": {"decoding": "jacobi", "draft_rows": 0},
    "gs-jacobi": {"decoding": "gs-jacobi", "draft_rows": 0},
    "hybrid-jacobi": {"decoding": "hybrid-jacobi", "draft_rows": 0},
    "input-guided": {"decoding": "input-guided", "draft_rows": 0},
    "fallback": {"decoding": "input-guided", "fallback": "nat", "draft_rows": 0},
    "lookup": {"decoding": "input-guided", "fallback": "ngram", "draft_rows": 0},
}
#: Drafters, which are built anew for each use, because they are freed when they are packed.
#: They take a dictionary and the width of the verifier's encoder, which one of them reads.
DRAFTERS = {
    "block-nat": lambda **more: drafter_model("full", **more),
    "chain": lambda **more: drafter_model("causal", chain_units=8, **more),
    "confident": lambda **more: drafter_model("causal", chain_units=8, **more),
    "shared encoder": lambda **more: drafter_model("causal", share=True, **more),
    "nat": lambda **more: drafter_model("causal", chain_units=8, **more),
    "fallback": lambda **more: drafter_model("causal", chain_units=8, **more),
}


def can_draft_for_itself(backend):
    """Whether a model can draft for itself: by the kernels, or as a GPU does."""
    return backend.unsupported() is None or backend.static


def verifier(method, seed=1, symbols=SYMBOLS, **arguments):
    """A tiny model that ``method`` can decode with, with heads where it reads them.

    Args:
        method: a key of ``METHODS``.
        seed: of its weights.
        symbols: its dictionary.
        arguments: of its architecture.
    """
    if method.endswith(" heads"):
        return blockwise_model(seed, method.split()[0], 4, symbols, **arguments)
    return tiny.model(seed, symbols=symbols, **arguments)


def drafter_for(method, model):
    """A new drafter for a model of :func:`verifier`; None where ``method`` needs none."""
    if method not in DRAFTERS:
        return None
    width = model.encoder.embed_tokens.embedding_dim
    return DRAFTERS[method](symbols=model.decoder.dictionary, encoder_embed_dim=width)


def generator(method, model, backend=None, options=None, **flags):
    """What the command line builds for ``method`` and a model of :func:`verifier`.

    Args:
        method: a key of ``METHODS``.
        model: the verifier.
        backend: who computes; None chooses.
        options: fairseq's generation options.
        flags: more flags of the method.
    """
    drafter = drafter_for(method, model)
    given = {} if drafter is None else {"drafter_path": "drafter.pt"}
    task = tiny.task(model.decoder.dictionary)
    task.cfg = DecodingConfig(**{**METHODS[method], **given, **flags})
    options = Namespace(**{"beam": 1, "max_len_a": 0, "max_len_b": 12, **(options or {})})
    with mock.patch.object(method_setup, "load_model", lambda *paths: drafter):
        return build.build_generator(task, [model], options, backend=backend)
