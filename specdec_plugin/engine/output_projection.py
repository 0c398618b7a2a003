"""From the decoder's hidden states to scores over the vocabulary."""

from typing import Optional

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor

from .linear import Linear
from .weights import WeightWatch


class OutputProjection:
    """The full output projection of a fairseq decoder, shared with the embedding or not.

    Args:
        decoder: the decoder whose ``output_projection`` is used.
        dtype: type to run in; ``None`` is the decoder's own.
    """

    def __init__(
        self, decoder: TransformerDecoderBase, dtype: Optional[torch.dtype] = None
    ) -> None:
        self._source = decoder.output_projection
        self._dtype = dtype
        # The whole decoder is watched: in training, it may call its projection in other ways.
        self._watch = WeightWatch(decoder)
        self.refresh()

    @property
    def vocabulary(self) -> int:
        """Number of scores; the dictionary may have grown beyond it since training."""
        return int(self._source.weight.size(0))

    def refresh(self) -> None:
        """Read the weights again if they changed."""
        if not self._watch.changed():
            return
        weight, bias = self._source.weight, self._source.bias
        dtype = self._dtype or weight.dtype
        with torch.inference_mode(False), torch.no_grad():
            self._linear = Linear(
                weight.detach().to(dtype), None if bias is None else bias.detach().to(dtype)
            )

    def logits(self, hidden: Tensor) -> Tensor:
        """Scores before normalisation.

        Args:
            hidden: (…, dim).

        Returns:
            (…, vocabulary), in the projection's dtype.
        """
        scores = self._linear(hidden.flatten(0, -2))
        return scores.view(*hidden.shape[:-1], scores.size(-1))
