"""Models that were told their beams, run with one row a sentence all the same.

fairseq's own search tells a BART model its beams when it is built (``BARTModel.set_beam_size``).
From then on the encoder reorders nothing, and attention looks at a sentence once for all beams.
"""

import contextlib
from typing import Any, Iterator, List, Mapping, Sequence

from torch import Tensor, nn


def reordered(encoder: Any, encoder_out: Any, rows: Tensor) -> Any:
    """What ``reorder_encoder_out`` of an encoder's class gives. ``encoder_out`` stays as it is.

    Args:
        encoder: fairseq's.
        encoder_out: what it gave, in its own layout.
        rows: (any,) long, indices that may repeat.
    """
    # Some encoders write the new order into the dictionary that they are given.
    given = dict(encoder_out) if isinstance(encoder_out, Mapping) else encoder_out
    return type(encoder).reorder_encoder_out(encoder, given, rows)


def told_beams(module: nn.Module) -> List[Any]:
    """The parts of a module that may have been told beams."""
    return [each for each in module.modules() if hasattr(each, "beam_size")]


@contextlib.contextmanager
def one_beam(parts: Sequence[Any]) -> Iterator[None]:
    """Let parts of a model have one beam meanwhile; see :func:`told_beams`."""
    kept = [each.beam_size for each in parts]
    for each in parts:
        each.beam_size = 1
    try:
        yield
    finally:
        for each, beams in zip(parts, kept):
            each.beam_size = beams
