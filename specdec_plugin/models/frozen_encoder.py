"""The verifier's encoder, serving the drafter too (``--share-encoder``)."""

from typing import Any, Dict, List, Optional

import torch
from fairseq.models import FairseqEncoder
from torch import Tensor, nn

from ..errors import PluginError


class FrozenEncoder(FairseqEncoder):
    """Stands where the drafter's encoder would; stores no weights and trains none.

    In training :meth:`attach` gives it the verifier's encoder.  In decoding the
    drafter is handed the verifier's encoder output and nothing is attached.
    """

    def __init__(self, dictionary: Any) -> None:
        super().__init__(dictionary)
        # A list hides the module: it is in no state dict, it has no trained
        # parameters, and train() does not switch its dropout on.
        self._attached: List[FairseqEncoder] = []

    def attach(self, encoder: FairseqEncoder) -> None:
        """Use ``encoder`` from now on, without gradient and without dropout."""
        encoder.eval()
        encoder.requires_grad_(False)
        self._attached = [encoder]

    @property
    def attached(self) -> FairseqEncoder:
        """The verifier's encoder; PluginError when there is none."""
        if not self._attached:
            raise PluginError(
                "This drafter shares its verifier's encoder and has none of its own. "
                "Train it with --verifier-path VERIFIER.pt, and decode with "
                "--path VERIFIER.pt --drafter-path DRAFTER.pt."
            )
        return self._attached[0]

    def forward(
        self, src_tokens: Tensor, src_lengths: Optional[Tensor] = None, **kwargs: Any
    ) -> Dict[str, List[Tensor]]:
        """See :meth:`fairseq.models.FairseqEncoder.forward`."""
        with torch.no_grad():
            return self.attached(src_tokens, src_lengths=src_lengths, **kwargs)

    def reorder_encoder_out(self, encoder_out: Any, new_order: Tensor) -> Any:
        """See :meth:`fairseq.models.FairseqEncoder.reorder_encoder_out`."""
        return self.attached.reorder_encoder_out(encoder_out, new_order)

    def max_positions(self) -> int:
        """The verifier's limit; without a verifier the drafter sets none."""
        return self._attached[0].max_positions() if self._attached else int(1e6)

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> nn.Module:
        """Device and type moves reach the hidden module too."""
        for encoder in self._attached:
            encoder._apply(fn, *args, **kwargs)
        return super()._apply(fn, *args, **kwargs)
