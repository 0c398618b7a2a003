"""Other rows of what a fairseq encoder gave."""

from typing import Any

from torch import Tensor


def reordered(encoder: Any, encoder_out: Any, rows: Tensor) -> Any:
    """What ``reorder_encoder_out`` of an encoder's class gives.

    ``BARTModel.set_beam_size`` replaces the method of its encoder by one that returns what it is
    given, because fairseq's own search then looks at a sentence once for all beams. It stays so.

    Args:
        encoder: fairseq's.
        encoder_out: what it gave, in its own layout.
        rows: (any,) long, indices that may repeat.
    """
    return type(encoder).reorder_encoder_out(encoder, encoder_out, rows)
