"""The verifier's encoder, shared with the drafter (``--share-encoder``)."""

from typing import Any, Dict, List, Optional

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor

from .attached import Attached


class FrozenEncoder(Attached, FairseqEncoder):
    """Stand-in for the drafter's encoder; it neither stores nor trains weights.

    In training :meth:`attach` gives it the verifier's encoder. In decoding nothing is attached,
    because the drafter receives the verifier's encoder output.
    """

    MISSING = (
        "This drafter shares its verifier's encoder and has none of its own. "
        "Train it with --verifier-path VERIFIER.pt, and decode with "
        "--path VERIFIER.pt --drafter-path DRAFTER.pt."
    )

    def forward(
        self, src_tokens: Tensor, src_lengths: Optional[Tensor] = None, **kwargs: Any
    ) -> Dict[str, List[Tensor]]:
        """See :meth:`fairseq.models.FairseqEncoder.forward`."""
        with torch.no_grad():
            encoded: Dict[str, List[Tensor]] = self.attached(
                src_tokens, src_lengths=src_lengths, **kwargs
            )
        return encoded

    def reorder_encoder_out(self, encoder_out: Any, new_order: Tensor) -> Any:
        """See :meth:`fairseq.models.FairseqEncoder.reorder_encoder_out`."""
        return self.attached.reorder_encoder_out(encoder_out, new_order)

    def max_positions(self) -> int:
        """The verifier's limit; without a verifier the drafter sets no limit."""
        return self._attached[0].max_positions() if self._attached else int(1e6)
