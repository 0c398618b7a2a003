"""The base model's decoder, whose states proposal heads read (``--frozen-base``)."""

from typing import Any, Tuple

import torch
from fairseq.models import FairseqDecoder
from torch import Tensor, nn

from .attached import Attached


class FrozenDecoder(Attached, FairseqDecoder):
    """Stands where the base model's decoder would; stores no weights and trains none."""

    MISSING = (
        "These proposal heads read the states of the model that they were trained for, and hold "
        "nothing of it. Train them with --verifier-path MODEL.pt, and decode with --path MODEL.pt "
        "--drafter-path HEADS.pt."
    )

    def forward(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        """See :meth:`fairseq.models.FairseqDecoder.forward`."""
        with torch.no_grad():
            said: Tuple[Tensor, Any] = self.attached(*args, **kwargs)
        return said

    def extract_features(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        """See :meth:`fairseq.models.FairseqDecoder.extract_features`."""
        with torch.no_grad():
            features: Tuple[Tensor, Any] = self.attached.extract_features(*args, **kwargs)
        return features

    @property
    def output_projection(self) -> nn.Module:
        """The vocabulary projection, through which the gradient of the heads passes."""
        projection: nn.Module = self.attached.output_projection
        return projection

    @property
    def layers(self) -> Any:
        """The base model's layers, the last of which says what heads may read of the source."""
        return self.attached.layers

    def max_positions(self) -> int:
        """The base model's limit; without it the heads set none."""
        return self._attached[0].max_positions() if self._attached else int(1e6)
