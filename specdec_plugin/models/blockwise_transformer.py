"""A Transformer that proposes the next k tokens itself (Stern et al., 2018, sections 4, 6).

The model is fairseq's Transformer with :class:`.proposal_heads.ProposalHeads` after its decoder.
The base may be a frozen trained model. Then only the heads are trained and stored, and they
draft for that model.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Set, Tuple

import torch
import torch.nn.functional as F
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerConfig,
    TransformerDecoderBase,
    base_architecture,
    transformer_vaswani_wmt_en_de_big,
)
from torch import Tensor

from ..errors import PluginError
from ..fairseq_compat.options import fill_in, option
from ..fairseq_compat.pairing import fingerprint_of_module
from .frozen import FrozenDecoder, FrozenEncoder, SharingModel
from .proposal_heads import ProposalHeads, Source

HEADS_CHOICES = ChoiceEnum(["joint", "separate", "source"])


@dataclass
class BlockwiseTransformerConfig(FairseqDataclass):
    """What proposal heads add to the options of a Transformer."""

    block_size: int = option(
        8, "k: heads, one for each of the next k tokens; decoding may use fewer"
    )
    heads: HEADS_CHOICES = option(
        "joint",
        "joint: each head reads the hidden layer of all heads, as in Stern et al. "
        "2018; separate: each head reads only its own, which is faster and has about k times "
        "fewer weights; source: separate heads that also attend to the source, which predict "
        "better",
    )
    head_units: int = option(0, "hidden units of each head; 0: as --decoder-ffn-embed-dim")
    learned_first_head: bool = option(
        False,
        "head 1 has weights like the others, as in Stern et al. 2018; otherwise head 1 "
        "is the base model itself, whose output decoding then preserves",
    )
    frozen_base: bool = option(
        False,
        "train only the heads, for the model in --verifier-path. Without "
        "--learned-first-head, the checkpoint stores only the heads, for --drafter-path",
    )


class LearnedFirstDecoder(TransformerDecoderBase):
    """fairseq's decoder, whose output passes through head 1 before the projection."""

    def lend(self, heads: ProposalHeads) -> None:
        """Use head 1 of ``heads``, which the model owns: a list hides them from the decoder."""
        self._lent = [heads]

    def first_head(self, features: Tensor) -> Tensor:
        """(…, dim) z_1 of (…, dim) h."""
        (state,) = self._lent[0](features, [1])
        return state

    def output_layer(self, features: Tensor) -> Tensor:
        return super().output_layer(self.first_head(features))


@register_model("blockwise_transformer")
class BlockwiseTransformerModel(SharingModel):
    """Base model and heads, with fingerprints of the dictionaries and base.

    Attributes:
        heads: the proposal heads.
        block_size: k.
        frozen: whether the base is frozen.
    """

    partner = "base_weights"

    def __init__(self, args: Any, encoder: Any, decoder: Any) -> None:
        super().__init__(args, encoder, decoder)
        _check_options(args, decoder)
        cfg = TransformerConfig.from_namespace(args)
        self.block_size = int(args.trained_block_size)
        self.frozen = bool(args.frozen_base)
        self.heads = ProposalHeads(
            cfg.decoder.output_dim,
            args.head_units or cfg.decoder.ffn_embed_dim,
            self.block_size,
            str(args.heads) == "joint",
            bool(args.learned_first_head),
            cfg.dropout,
            cfg.activation_dropout,
            cfg.decoder.attention_heads if str(args.heads) == "source" else 0,
            cfg.decoder.embed_dim,
        )
        if isinstance(decoder, LearnedFirstDecoder):
            decoder.lend(self.heads)
        if self.frozen:
            encoder.requires_grad_(False)
            decoder.requires_grad_(False)

    @property
    def alone(self) -> bool:
        """Whether the model holds only the heads."""
        return isinstance(self.decoder, FrozenDecoder)

    @property
    def trained_heads(self) -> Sequence[int]:
        """The heads whose loss changes a weight."""
        return range(self.heads.first if self.frozen else 1, self.block_size + 1)

    def belongs_to(self, base: Any) -> bool:
        """Whether the heads were trained for ``base``, or for no particular base."""
        own = self.base_weights.cpu()
        return not own.any() or torch.equal(own, fingerprint_of_module(base.decoder))

    def start_from(self, path: str, base: Any) -> None:
        """Take over the weights of a Transformer, or attach it if the model holds only heads.

        ``base`` is a model of the same shape, read from ``path``.

        Raises:
            PluginError: ``base`` has another shape or a learned first head.
        """
        if isinstance(base.decoder, LearnedFirstDecoder):
            raise PluginError(
                f"{path} has a learned first head, which cannot be part of another model: continue "
                "its training with --finetune-from-model, or start from a plain Transformer."
            )
        if self.frozen:
            self.base_weights = fingerprint_of_module(base.decoder)
        if self.alone:
            self.encoder.attach(base.encoder)
            self.decoder.attach(base.decoder)
            return
        given = _of_base(base)
        unlike = _shapes(_of_base(self)) ^ _shapes(given)
        if unlike:
            name, _ = min(unlike)
            raise PluginError(
                f"{path} does not have the weights of a plain Transformer ({name} differs), "
                "so a blockwise Transformer cannot start from it. Give a model that was trained "
                "with --arch transformer."
            )
        self.load_state_dict({**self.state_dict(), **given})

    def start_heads_from(self, path: str, other: Any) -> None:
        """Take over the proposal heads of ``other``, read from ``path``, or the first of them.

        Raises:
            PluginError: ``other`` has no proposal heads, or heads of another shape.
        """
        if not isinstance(other, BlockwiseTransformerModel):
            raise PluginError(
                f"{path} has no proposal heads to start from. Give a model that was trained with "
                "--arch blockwise_transformer, or leave --heads-path out."
            )
        try:
            self.heads.start_as(other.heads)
        except ValueError as error:
            raise PluginError(
                f"The proposal heads of {path} have another form: {error}. Give their --heads and "
                "--head-units, their base, and at most their --block-size, or leave --heads-path "
                "out."
            ) from None

    def train(self, mode: bool = True) -> "BlockwiseTransformerModel":
        """Set the mode; a frozen base runs without dropout, as in decoding."""
        super().train(mode)
        if self.frozen:
            self.encoder.eval()
            self.decoder.eval()
        return self

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add the options of a Transformer and of :class:`BlockwiseTransformerConfig`."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, BlockwiseTransformerConfig(), delete_default=True)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: Any) -> Any:
        """fairseq's encoder, or a stand-in for the base model's."""
        if _alone(args):
            return FrozenEncoder(src_dict)
        return super().build_encoder(args, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: Any) -> Any:
        """fairseq's decoder, perhaps with a learned first head, or a stand-in for the base's."""
        if _alone(args):
            return FrozenDecoder(tgt_dict)
        if args.learned_first_head:
            bare = bool(args.no_cross_attention)
            return LearnedFirstDecoder(args, tgt_dict, embed_tokens, no_encoder_attn=bare)
        return super().build_decoder(args, tgt_dict, embed_tokens)

    def features(
        self, src_tokens: Tensor, src_lengths: Tensor, prev_output_tokens: Tensor
    ) -> Tuple[Tensor, Optional[Source]]:
        """The inputs of the heads.

        Returns:
            the decoder's states at each token of the shifted target, (rows, length, dim), and
            the source for heads that read it.
        """
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
            found: Tensor = self.decoder.extract_features(
                prev_output_tokens, encoder_out=encoder_out
            )[0]
            return found, self._source(encoder_out) if self.heads.readers else None

    def _source(self, encoder_out: Dict[str, List[Tensor]]) -> Source:
        attention = self.decoder.layers[-1].encoder_attn
        encoded = encoder_out["encoder_out"][0].transpose(0, 1)  # (rows, source, dim)
        keys, values = (
            part(encoded).unflatten(2, (self.heads.readers, -1)).transpose(1, 2)
            for part in (attention.k_proj, attention.v_proj)
        )
        padding = encoder_out["encoder_padding_mask"]
        return Source(keys, values, ~padding[0][:, None, None] if padding else None)

    def states(
        self,
        features: Tensor,
        source: Optional[Source],
        prev_output_tokens: Tensor,
        heads: Sequence[int],
    ) -> List[Tensor]:
        """The states of heads at the positions where the sentence has a token to predict.

        Args:
            features: (rows, length, dim), from :meth:`features`.
            source: from there too.
            prev_output_tokens: (rows, length) the shifted target.
            heads: numbers from 1 to k.

        Returns:
            (n, dim) of each head, for the n positions that :meth:`positions` marks, in order.
        """
        found = self.heads(features, heads, source)
        return [
            state[self.positions(prev_output_tokens, head)] for head, state in zip(heads, found)
        ]

    def positions(self, prev_output_tokens: Tensor, head: int) -> Tensor:
        """(rows, length) true at positions that ``head`` or more tokens of the sentence follow."""
        real = prev_output_tokens.ne(self.decoder.dictionary.pad())
        ahead = min(head - 1, real.size(1))
        return F.pad(real[:, ahead:], (0, ahead))

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        heads: Optional[Sequence[int]] = None,
        **kwargs: Any,
    ) -> Any:
        """fairseq's forward (head 1), or the unprojected states of some heads.

        Args:
            src_tokens: (rows, source) source tokens.
            src_lengths: (rows,) their number.
            prev_output_tokens: (rows, length) the shifted target.
            heads: numbers from 1 to k, or None for fairseq's forward.
            kwargs: further arguments of fairseq's forward.

        Returns:
            fairseq's output, or that of :meth:`states`.
        """
        if heads is None:
            return super().forward(src_tokens, src_lengths, prev_output_tokens, **kwargs)
        found = self.features(src_tokens, src_lengths, prev_output_tokens)
        first, *others = self.states(*found, prev_output_tokens, heads)
        if torch.is_grad_enabled() and torch.distributed.is_initialized():
            first = first + self._nothing().to(first.dtype)
        return [first, *others]

    def _nothing(self) -> Tensor:
        """0, with a gradient of 0 for all that is trained.

        PyTorch's distributed training wants a gradient of each weight that the output depends on.
        An update may train one head, and the criterion projects states outside of the model.
        """
        trained = [each for each in self.parameters() if each.requires_grad]
        return torch.stack([0 * each.flatten()[0] for each in trained]).sum()


def _alone(args: Any) -> bool:
    """Whether the model holds only heads. A learned first head changes the base and needs it."""
    return bool(args.frozen_base) and not args.learned_first_head


def _of_base(model: Any) -> Dict[str, Tensor]:
    weights = model.state_dict().items()
    return {name: each for name, each in weights if name.startswith(("encoder.", "decoder."))}


def _shapes(weights: Dict[str, Tensor]) -> Set[Tuple[str, Tuple[int, ...]]]:
    return {(name, tuple(each.shape)) for name, each in weights.items()}


def _check_options(args: Any, decoder: Any) -> None:
    """Raise PluginError for options that cannot be trained or run."""
    if isinstance(decoder, TransformerDecoderBase) and decoder.adaptive_softmax is not None:
        raise PluginError(
            "A blockwise Transformer cannot have an adaptive softmax, because all heads share its "
            "projection: leave --adaptive-softmax-cutoff out."
        )
    if str(args.heads) == "source" and (args.learned_first_head or args.no_cross_attention):
        raise PluginError(
            "--heads source needs a base model with cross-attention, whose own output is head 1: "
            "leave --learned-first-head and --no-cross-attention out, or give --heads separate."
        )
    if args.trained_block_size < 2 or args.head_units < 0:
        raise PluginError(
            f"--block-size {args.trained_block_size} --head-units {args.head_units}: a blockwise "
            "Transformer needs a block size of 2 or more, and 0 (the default) or more head units."
        )


@register_model_architecture("blockwise_transformer", "blockwise_transformer_base")
@register_model_architecture("blockwise_transformer", "blockwise_transformer")
def blockwise_transformer(args: Namespace) -> None:
    """Transformer base (d=512, 6+6 layers, as in Stern et al. 2018) with the heads' defaults."""
    fill_in(args, BlockwiseTransformerConfig())
    # Decoding has its own, perhaps smaller --block-size, which fairseq's hub passes to the model.
    args.trained_block_size = getattr(args, "trained_block_size", args.block_size)
    base_architecture(args)


@register_model_architecture("blockwise_transformer", "blockwise_transformer_small")
def blockwise_transformer_small(args: Namespace) -> None:
    """The size of the shipped models (d=256, 3+3 layers, all embeddings shared)."""
    small = dict(embed_dim=256, ffn_embed_dim=1024, layers=3, attention_heads=4)
    for side in ("encoder", "decoder"):
        for item, default in small.items():
            setattr(args, f"{side}_{item}", getattr(args, f"{side}_{item}", default))
    args.share_all_embeddings = getattr(args, "share_all_embeddings", True)
    blockwise_transformer(args)


@register_model_architecture("blockwise_transformer", "blockwise_transformer_big")
def blockwise_transformer_big(args: Namespace) -> None:
    """Transformer big (d=1024, 6+6 layers, dropout 0.3)."""
    transformer_vaswani_wmt_en_de_big(args)
    blockwise_transformer(args)
