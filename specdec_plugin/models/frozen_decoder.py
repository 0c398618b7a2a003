"""The base model's decoder, whose states proposal heads read (``--frozen-base``)."""

from typing import Any, Tuple

import torch
from fairseq.models import FairseqDecoder
from torch import Tensor, nn

from .attached import Attached


class FrozenDecoder(Attached, FairseqDecoder):
    """Stand-in for the base model's decoder; it neither stores nor trains weights."""

    MISSING = (
        "These proposal heads read the states of the model that they were trained for, and do not "
        "contain that model. Train them with --verifier-path MODEL.pt, and decode with --path "
        "MODEL.pt --drafter-path HEADS.pt."
    )

    def forward(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        """See :meth:`fairseq.models.FairseqDecoder.forward`."""
        with torch.no_grad():
            output: Tuple[Tensor, Any] = self.attached(*args, **kwargs)
        return output

    def extract_features(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        """See :meth:`fairseq.models.FairseqDecoder.extract_features`."""
        with torch.no_grad():
            features: Tuple[Tensor, Any] = self.attached.extract_features(*args, **kwargs)
        return features

    @property
    def output_projection(self) -> nn.Module:
        """The vocabulary projection; the gradient of the heads passes through it."""
        projection: nn.Module = self.attached.output_projection
        return projection

    @property
    def layers(self) -> Any:
        """The base's layers; heads may read the last one's cross-attention keys and values."""
        return self.attached.layers

    def max_positions(self) -> int:
        """The base model's limit; without a base model the heads set no limit."""
        return self._attached[0].max_positions() if self._attached else int(1e6)
