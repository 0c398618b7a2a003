"""Kernels of our own for CPUs: a whole Transformer stack in one call.

At the sizes of translation models, the arithmetic of one decoding step takes a
fraction of the time of the operators that PyTorch starts for it. These kernels
run the layers in one parallel region, with weights packed once for products with
few rows. They are compiled on first use; without a compiler everything runs on
PyTorch's operators.
"""

import ctypes
import functools
import logging
import os
from ctypes import POINTER, c_double, c_float, c_int, c_int64, c_void_p
from typing import Any, Optional

import torch
from torch import Tensor

from .build import library_path

logger = logging.getLogger(__name__)

#: Activations that the kernels know, by the number of their C++ name.
ACTIVATIONS = {"relu": 1, "gelu": 2}


class Call(ctypes.Structure):
    """``Call`` of ``stack.h``."""

    _fields_ = [
        ("rows", c_int),
        ("width", c_int),
        ("into", c_void_p),
        ("tokens", c_void_p),
        ("token_stride", c_int),
        ("behind", c_int),
        ("positions", c_void_p),
        ("position_limit", c_int),
        ("counts", c_void_p),
        ("block", c_int),
        ("out", c_void_p),
        ("starts", c_void_p),
        ("limits", c_void_p),
        ("own_mask", c_void_p),
        ("places_in_all", c_int),
        ("places", c_void_p),
        ("cache", c_void_p),
        ("capacity", c_int),
        ("source", c_void_p),
        ("source_mask", c_void_p),
        ("source_length", c_int),
    ]


class Links(ctypes.Structure):
    """``Links`` of ``chain.h``."""

    _fields_ = [
        ("rows", c_int),
        ("block", c_int),
        ("states", c_void_p),
        ("last", c_void_p),
        ("never", c_int),
        ("floor", c_float),
        ("tokens", c_void_p),
        ("lengths", c_void_p),
    ]


class Rows(ctypes.Structure):
    """``Rows`` of ``rounds.h``."""

    _fields_ = [
        ("count", c_int),
        ("room", c_int),
        ("tokens", c_void_p),
        ("scores", c_void_p),
        ("lengths", c_void_p),
        ("states", c_void_p),
        ("iterate", c_void_p),
        ("iterate_room", c_int),
    ]


class Proposal(ctypes.Structure):
    """``Proposal`` of ``rounds.h``."""

    _fields_ = [
        ("rows", Rows),
        ("call", Call),
        ("block", c_int),
        ("never", c_int),
        ("floor", c_float),
        ("fed", c_void_p),
        ("draft", c_void_p),
        ("draft_lengths", c_void_p),
    ]


class Monologue(ctypes.Structure):
    """``Monologue`` of ``rounds.h``."""

    _fields_ = [
        ("rows", Rows),
        ("call", Call),
        ("block", c_int),
        ("never", c_int),
        ("eos", c_int64),
        ("min_len", c_int64),
        ("max_len", c_int64),
        ("shortlist", c_void_p),
        ("draft", c_void_p),
        ("draft_lengths", c_void_p),
    ]


class Certainty(ctypes.Structure):
    """``Certainty`` of ``certainty.h``."""

    _fields_ = [("apart", c_float), ("length", c_float)]


class Round(ctypes.Structure):
    """``Round`` of ``rounds.h``."""

    _fields_ = [
        ("rows", Rows),
        ("call", Call),
        ("block", c_int),
        ("draft", c_void_p),
        ("draft_lengths", c_void_p),
        ("never", c_int),
        ("eos", c_int64),
        ("min_len", c_int64),
        ("max_len", c_int64),
        ("screen", c_void_p),
        ("symbols", c_void_p),
        ("bias", c_void_p),
        ("gather", c_void_p),
        ("certainty", Certainty),
        ("beta", c_int),
        ("tolerance", c_float),
        ("numbers", c_void_p),
        ("epsilon", c_float),
        ("least", c_int),
        ("drafted", c_void_p),
        ("kept", c_void_p),
        ("added", c_void_p),
        ("lengths", c_void_p),
        ("ended", c_void_p),
        ("asked", c_int64),
        ("sure", c_int64),
        ("scoring", c_double),
    ]


class Foresight(ctypes.Structure):
    """``Foresight`` of ``heads.h``."""

    _fields_ = [
        ("rows", c_int),
        ("block", c_int),
        ("states", c_void_p),
        ("source", c_void_p),
        ("source_mask", c_void_p),
        ("source_length", c_int),
        ("places_in_all", c_int),
        ("places", c_void_p),
        ("never", c_int),
        ("eos", c_int64),
        ("floor", c_float),
        ("least", c_int),
        ("draft", c_void_p),
        ("draft_lengths", c_void_p),
    ]


class Guessing(ctypes.Structure):
    """``Guessing`` of ``guesses.h``."""

    _fields_ = [
        ("rows", Rows),
        ("block", c_int),
        ("size", c_int),
        ("floor", c_double),
        ("until", c_int64),
        ("eos", c_int64),
        ("source", c_void_p),
        ("source_length", c_int),
        ("pool", c_void_p),
        ("entries", c_int64),
        ("tries", c_void_p),
        ("hits", c_void_p),
        ("known", c_void_p),
        ("before", c_void_p),
        ("draft", c_void_p),
        ("origins", c_void_p),
        ("draft_lengths", c_void_p),
    ]


class Copying(ctypes.Structure):
    """``Copying`` of ``copies.h``."""

    _fields_ = [
        ("rows", Rows),
        ("block", c_int),
        ("longest", c_int),
        ("near", c_int),
        ("eos", c_int64),
        ("source", c_void_p),
        ("source_length", c_int),
        ("matches", c_void_p),
        ("seen", c_void_p),
        ("places", c_void_p),
        ("draft", c_void_p),
        ("draft_lengths", c_void_p),
    ]


_OF_CLUSTERS = [c_void_p] * 2 + [c_int] * 2 + [c_void_p] * 2 + [c_int] + [c_void_p] * 2
_SIGNATURES = {
    "linear_new": (c_void_p, [c_void_p, c_void_p, c_int, c_int, c_int]),
    "linear_free": (None, [c_void_p]),
    "linear_run": (None, [c_void_p, c_void_p, c_int, c_void_p, c_int]),
    "planes_run": (None, [c_void_p, c_void_p] + [c_int] * 4 + [c_void_p, c_int]),
    "scores_run": (None, [c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_int]),
    "probabilities_run": (
        None,
        [c_void_p, c_int, c_int, c_void_p, c_float, c_void_p, c_void_p, c_int],
    ),
    "gather_new": (c_void_p, _OF_CLUSTERS),
    "gather_free": (None, [c_void_p]),
    "gather_run": (None, [c_void_p, c_void_p, c_int, c_int, c_void_p, c_void_p, c_int]),
    "shortlist_new": (c_void_p, _OF_CLUSTERS),
    "shortlist_free": (None, [c_void_p]),
    "chain_new": (c_void_p, [c_void_p] * 7 + [c_int, c_float]),
    "chain_free": (None, [c_void_p]),
    "chain_run": (None, [c_void_p, POINTER(Links), c_int]),
    "heads_new": (c_void_p, [c_int, c_int, c_int]),
    "heads_free": (None, [c_void_p]),
    "heads_query": (None, [c_void_p, c_void_p]),
    "heads_inner": (None, [c_void_p, c_void_p]),
    "heads_outer": (None, [c_void_p, c_void_p]),
    "heads_run": (None, [c_void_p, c_void_p, POINTER(Foresight), c_int]),
    "stack_new": (c_void_p, [c_int, c_int, c_int, c_int]),
    "stack_free": (None, [c_void_p]),
    "stack_embedding": (
        None,
        [c_void_p, c_void_p, c_float, c_void_p, c_int, c_void_p, c_void_p, c_float],
    ),
    "stack_final_norm": (None, [c_void_p, c_void_p, c_void_p, c_float]),
    "stack_layer": (None, [c_void_p] * 7 + [POINTER(c_void_p), POINTER(c_float)]),
    "stack_run": (None, [c_void_p, POINTER(Call), c_int]),
    "proposer_new": (c_void_p, []),
    "proposer_free": (None, [c_void_p]),
    "proposer_run": (None, [c_void_p, c_void_p, c_void_p, POINTER(Proposal), c_int]),
    "speaker_new": (c_void_p, []),
    "speaker_free": (None, [c_void_p]),
    "speaker_run": (None, [c_void_p, c_void_p, c_void_p, POINTER(Monologue), c_int]),
    "verification_new": (c_void_p, []),
    "verification_free": (None, [c_void_p]),
    "verification_run": (None, [c_void_p, c_void_p, c_void_p, POINTER(Round), c_int]),
    "guesser_new": (c_void_p, []),
    "guesser_free": (None, [c_void_p]),
    "guesser_guess": (None, [c_void_p, POINTER(Guessing)]),
    "guesser_learn": (None, [c_void_p, POINTER(Guessing)]),
    "copies_run": (None, [POINTER(Copying)]),
}


@functools.cache
def library() -> Any:
    """The compiled kernels; None where they are turned off or cannot be had."""
    if os.environ.get("SPECDEC_NATIVE", "1") == "0":
        return None
    path = library_path()
    if path is None:
        logger.info("decoding runs on PyTorch's operators, which is slower on a CPU")
        return None
    # PyTorch has loaded its OpenMP by now, and the kernels share its threads.
    loaded = ctypes.CDLL(str(path))
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    return loaded


def pointer(tensor: Optional[Tensor]) -> Optional[int]:
    """Where a contiguous tensor begins; None for None."""
    return None if tensor is None else tensor.data_ptr()


def float_weight(tensor: Tensor) -> Tensor:
    """A weight as the kernels read it: contiguous float32 on the CPU."""
    return tensor.detach().to(torch.float32).contiguous()
