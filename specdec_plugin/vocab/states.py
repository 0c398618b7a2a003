"""A decoder's states right before the projection, and the tokens that it predicts there."""

from typing import Any, Dict, Tuple

import torch
from torch import Tensor

from ..engine import CachedDecoder, build_engine
from ..engine.encoder import build_encoder
from ..errors import PluginError

#: States that are projected at once: their scores over a large vocabulary are many.
_AT_ONCE = 256


class StateReader:
    """Feeds targets, or its own output, to a model (Amer et al., 2022, section 2.2).

    Args:
        model: fairseq's encoder-decoder model.
        top_k: K, how many of the likeliest tokens of each state are read; all, if there are fewer.
        pad: pads targets, and is never likely.

    Attributes:
        dim: size of a state.
        top_k: K.

    Raises:
        PluginError: the model has no such projection.
    """

    def __init__(self, model: Any, top_k: int, pad: int) -> None:
        engine = build_engine(model)
        if not isinstance(engine, CachedDecoder):
            raise PluginError(
                "The states of this model cannot be clustered, because "
                f"{CachedDecoder.unsupported(model.decoder)}. Use a plain Transformer."
            )
        self._engine, self._encode = engine, build_encoder(model)
        projection = model.decoder.output_projection
        self.dim, self.top_k = projection.in_features, min(top_k, projection.out_features - 1)
        self._pad = pad

    @torch.no_grad()
    def read(self, net_input: Dict[str, Any], fed: Tensor) -> Tuple[Tensor, Tensor]:
        """The states behind each token of a batch.

        Args:
            net_input: fairseq's, with the sources.
            fed: (rows, length) what the decoder is fed, padded on the right.

        Returns:
            (tokens, dim) states and (tokens, K) the likeliest tokens there, the likeliest first.
        """
        self._engine.refresh()
        state = self._engine.start(self._encode(net_input), fed.size(1))
        hidden = self._engine.feed(state, fed)[fed.ne(self._pad)]
        projection = self._engine.projection
        likely = [
            projection.scores(part, suppressed_id=self._pad).values.topk(self.top_k).indices
            for part in hidden.split(_AT_ONCE)
        ]
        return projection.entering(hidden), torch.cat(likely)
