"""Parts of a trained model that serve in training another, and are neither trained nor stored."""

from typing import Any, ClassVar, Dict, List, Optional, Tuple

import torch
from fairseq.models import FairseqDecoder, FairseqEncoder
from fairseq.models.transformer import TransformerModel
from torch import Tensor, nn

from ..errors import PluginError
from ..fairseq_compat.beams_of_models import reordered
from ..fairseq_compat.hydra_train import as_arguments
from ..fairseq_compat.pairing import fingerprint_of_dictionary


class Attached(nn.Module):
    """Base class of stand-ins for a module of the verifier or base model."""

    #: The error when no module is attached.
    MISSING: str

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # A list hides the module from PyTorch. It is in no state dict, it has no trained
        # parameters, and train() does not switch its dropout on.
        self._attached: List[Any] = []

    def attach(self, module: Any) -> None:
        """Use ``module`` from now on, without gradient and without dropout."""
        module.eval()
        module.requires_grad_(False)
        self._attached = [module]

    @property
    def attached(self) -> Any:
        """The module; PluginError when there is none."""
        if not self._attached:
            raise PluginError(self.MISSING)
        return self._attached[0]

    def max_positions(self) -> int:
        """The module's limit; without a module there is no limit."""
        return self._attached[0].max_positions() if self._attached else int(1e6)

    def _apply(self, fn: Any, *args: Any, **kwargs: Any) -> nn.Module:
        """Device and type moves reach the hidden module too."""
        for module in self._attached:
            module._apply(fn, *args, **kwargs)
        return super()._apply(fn, *args, **kwargs)


class FrozenEncoder(Attached, FairseqEncoder):
    """The verifier's encoder in place of the drafter's own (``--share-encoder``).

    In training :meth:`attach` gives it the verifier's encoder. In decoding nothing is attached,
    because the drafter receives the verifier's encoder output.
    """

    MISSING = (
        "This drafter shares its verifier's encoder and has none of its own. "
        "Train it with --verifier-path VERIFIER.pt, and decode with "
        "--path VERIFIER.pt --drafter-path DRAFTER.pt."
    )

    @torch.no_grad()
    def forward(
        self, src_tokens: Tensor, src_lengths: Optional[Tensor] = None, **kwargs: Any
    ) -> Dict[str, List[Tensor]]:
        return self.attached(src_tokens, src_lengths=src_lengths, **kwargs)

    def reorder_encoder_out(self, encoder_out: Any, new_order: Tensor) -> Any:
        return reordered(self.attached, encoder_out, new_order)


class SharingModel(TransformerModel):
    """A Transformer that is trained beside another model, with fingerprints of both.

    It may have a :class:`FrozenEncoder`, and then needs no source symbols.

    Attributes:
        partner: the buffer with the fingerprint of the other model's weights; 0 where it has none.
    """

    partner: ClassVar[str]

    def __init__(self, args: Any, encoder: Any, decoder: Any) -> None:
        super().__init__(args, encoder, decoder)
        # The checkpoint holds the fingerprints, so that pairing the model with another dictionary
        # or another partner is an error; see fairseq_compat.pairing.
        self.register_buffer("source_symbols", fingerprint_of_dictionary(encoder.dictionary))
        self.register_buffer("target_symbols", fingerprint_of_dictionary(decoder.dictionary))
        self.register_buffer(self.partner, torch.zeros(1, dtype=torch.int64))

    def fingerprints(self) -> Dict[str, Tensor]:
        """Fingerprints of the training setup by name, (1,) each, copied; 0 where unknown."""
        names = ("source_symbols", "target_symbols", self.partner)
        return {name: getattr(self, name).cpu().clone() for name in names}

    @classmethod
    def build_model(cls, args: Any, task: Any) -> Any:
        """Build the model from the options of fairseq-train or of fairseq-hydra-train."""
        return super().build_model(as_arguments(args), task)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: Any) -> Any:
        """fairseq's encoder.

        Raises:
            PluginError: there are no source symbols, because the source is speech.
        """
        if src_dict is None:
            raise PluginError(
                "An encoder of its own reads text, and the source is speech here: train a drafter "
                "with --share-encoder, or heads with --frozen-base and no --learned-first-head."
            )
        return super().build_encoder(args, src_dict, embed_tokens)

    @classmethod
    def build_embedding(
        cls, args: Any, dictionary: Any, embed_dim: int, path: Optional[str] = None
    ) -> Any:
        """fairseq's embedding; None where ``dictionary`` is None, because the source is speech."""
        if dictionary is None:
            return None
        return super().build_embedding(args, dictionary, embed_dim, path)


class FrozenDecoder(Attached, FairseqDecoder):
    """The base model's decoder, whose states proposal heads read (``--frozen-base``)."""

    MISSING = (
        "These proposal heads read the states of the model that they were trained for, and do not "
        "contain that model. Train them with --verifier-path MODEL.pt, and decode with --path "
        "MODEL.pt --drafter-path HEADS.pt."
    )

    @torch.no_grad()
    def forward(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        return self.attached(*args, **kwargs)

    @torch.no_grad()
    def extract_features(self, *args: Any, **kwargs: Any) -> Tuple[Tensor, Any]:
        return self.attached.extract_features(*args, **kwargs)

    @property
    def output_projection(self) -> nn.Module:
        """The vocabulary projection; the gradient of the heads passes through it."""
        return self.attached.output_projection

    @property
    def layers(self) -> Any:
        """The base's layers; heads may read the last one's cross-attention keys and values."""
        return self.attached.layers


class FrozenVerifier:
    """A whole trained model as a drafter's teacher.

    Args:
        model: a fairseq encoder-decoder model, in evaluation mode from now on.
    """

    def __init__(self, model: Any) -> None:
        self.model = model.eval().requires_grad_(False)
        self._weights = [*model.parameters()]  # To walk all modules takes longer.

    @torch.no_grad()
    def logits(
        self, net_input: Dict[str, Any], encoder: Any, encoder_out: Any, dtype: torch.dtype
    ) -> Tensor:
        """Logits of the next token after each token of the shifted target.

        Args:
            net_input: fairseq's ``src_tokens``, ``src_lengths`` and ``prev_output_tokens``.
            encoder: the drafter's encoder.
            encoder_out: the output of ``encoder``; reused when ``encoder`` is this model's own.
            dtype: of the drafter's weights, in which it is, as with ``--fp16``.

        Returns:
            (rows, length, vocabulary).
        """
        tokens = net_input["prev_output_tokens"]
        self._move(tokens.device, dtype)
        if getattr(encoder, "attached", None) is not self.model.encoder:
            encoder_out = self.model.encoder(net_input["src_tokens"], net_input["src_lengths"])
        decoder = self.model.decoder
        features, _ = decoder(tokens, encoder_out=encoder_out, features_only=True)
        # PyTorch would copy the projection for each row: fairseq's features are transposed.
        return decoder.output_layer(features.contiguous())

    def _move(self, device: torch.device, dtype: torch.dtype) -> None:
        """Move the model, unless all of it is there: its encoder may have been moved alone."""
        if any(each.device != device or each.dtype != dtype for each in self._weights):
            self.model.to(device, dtype)
