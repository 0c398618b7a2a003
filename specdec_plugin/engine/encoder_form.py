"""The form in which a fairseq Transformer encoder returns a batch."""

from typing import Dict, List, Optional

from torch import Tensor


def encoder_form(
    encoded: Tensor, padding: Optional[Tensor], lengths: Tensor
) -> Dict[str, List[Tensor]]:
    """What fairseq's decoders read, without the states between layers.

    Args:
        encoded: (rows, src, dim).
        padding: (rows, src), true where padded; None: nowhere.
        lengths: (rows,) symbols of each source.
    """
    return {
        "encoder_out": [encoded.transpose(0, 1)],
        "encoder_padding_mask": [] if padding is None else [padding],
        "encoder_embedding": [],
        "encoder_states": [],
        "fc_results": [],
        "src_tokens": [],
        "src_lengths": [lengths.view(-1, 1).int()],
    }
