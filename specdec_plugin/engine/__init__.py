"""How a fairseq decoder is run fast on several new tokens at once; knows nothing of drafting."""

import logging
from typing import Callable, Optional, Union

import torch
from fairseq.models import BaseFairseqModel

from ..fairseq_compat.held_in_half import hold_none
from .backend import Backend, GraphBackend, NativeBackend, TorchBackend, choose_backend
from .cached_decoder import CachedDecoder
from .decoder_state import DecoderState
from .output_projection import OutputProjection
from .uncached_decoder import TokenState, UncachedDecoder

__all__ = [
    "Backend",
    "CachedDecoder",
    "DecoderState",
    "Engine",
    "GraphBackend",
    "NativeBackend",
    "TokenState",
    "TorchBackend",
    "UncachedDecoder",
    "build_engine",
    "choose_backend",
]

logger = logging.getLogger(__name__)

Engine = Union[CachedDecoder, UncachedDecoder]


def build_engine(
    model: BaseFairseqModel,
    dtype: Optional[torch.dtype] = None,
    project: Callable[..., OutputProjection] = OutputProjection,
    backend: Optional[Backend] = None,
) -> Engine:
    """The fastest engine that gives what ``model``'s decoder gives.

    Args:
        model: a fairseq encoder-decoder model.
        dtype: type to run the decoder in; ``None`` is the model's own.
        project: makes the output projection, where the decoder is one that can be cached.
        backend: who computes; ``None`` chooses.
    """
    reason = CachedDecoder.unsupported(model.decoder)
    if reason is None:
        return CachedDecoder(model.decoder, dtype, project=project, backend=backend)
    logger.info(
        f"the decoder runs without a cache, in full for every step, because {reason}"
        + ("" if dtype is None else f"; {dtype} is ignored")
    )
    hold_none(model)
    return UncachedDecoder(model)
