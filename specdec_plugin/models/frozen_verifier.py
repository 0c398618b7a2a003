"""The verifier as a drafter's teacher."""

from typing import Any, Dict

import torch
from torch import Tensor


class FrozenVerifier:
    """A trained encoder-decoder model, evaluated without training it.

    Args:
        model: a fairseq model, in evaluation mode from now on.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)

    @torch.no_grad()
    def logits(self, net_input: Dict[str, Any], encoder: Any, encoder_out: Any) -> Tensor:
        """Logits of the next token after each token of the shifted target.

        Args:
            net_input: fairseq's ``src_tokens``, ``src_lengths`` and ``prev_output_tokens``.
            encoder: the drafter's encoder.
            encoder_out: the output of ``encoder``; reused when ``encoder`` is this model's own.

        Returns:
            (rows, length, vocabulary).
        """
        tokens = net_input["prev_output_tokens"]
        self.model.to(tokens.device)
        if getattr(encoder, "attached", None) is not self.model.encoder:
            encoder_out = self.model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        scores: Tensor = self.model.decoder(tokens, encoder_out=encoder_out)[0]
        return scores
