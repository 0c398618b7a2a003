"""The drafter: a block non-autoregressive Transformer (Xia et al., 2023, section 3).

The decoder reads [prefix ; k mask vectors] and predicts the k hidden tokens at once.
It is fairseq's decoder with one additional parameter, so the engine runs verifiers and
drafters alike.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from torch import Tensor, nn

from ..data.block_masking import Blocks, glance, input_positions, may_attend
from ..errors import PluginError
from ..fairseq_compat.options import fill_in, option
from ..fairseq_compat.pairing import fingerprint_of_module
from .chain_head import ChainHead
from .frozen import FrozenEncoder, SharingModel

PREFIX_ATTENTION_CHOICES = ChoiceEnum(["full", "causal"])


@dataclass
class BlockNATConfig(FairseqDataclass):
    """What a block-NAT drafter adds to the options of a Transformer."""

    block_size: int = option(10, "k: tokens that the drafter predicts at once (default: 10)")
    prefix_attention: PREFIX_ATTENTION_CHOICES = option(
        "causal",
        "causal (default): prefix tokens attend only to the prefix, so the drafter caches them "
        "and trains on many blocks per sentence; full: prefix tokens attend to the masks too, "
        "as in Xia et al. 2023, and are recomputed for each block",
    )
    share_encoder: bool = option(
        False,
        "use the verifier's frozen encoder: the drafter stores, trains and runs only "
        "its decoder; training needs --verifier-path",
    )
    chain_units: int = option(
        0,
        "units of a recurrent layer after the decoder, which conditions each token of "
        "a block on the tokens before it; 0 (default): predict all tokens independently, as Xia "
        "et al. 2023 do",
    )


class Glancing(NamedTuple):
    """The ratio λ of revealed reference tokens, and (rows, blocks, k) noise that selects them."""

    ratio: float
    noise: Tensor


class BlockPrediction(NamedTuple):
    """What the drafter predicts for a batch of hidden blocks.

    Attributes:
        logits: (scored positions, vocabulary).
        scored: (rows, blocks, k) true at those positions, in the same order.
        encoder_out: the encoder output that the predictions used.
    """

    logits: Tensor
    scored: Tensor
    encoder_out: Any


class BlockNATDecoder(TransformerDecoderBase):
    """fairseq's decoder with learned mask vectors."""

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: Any, **kwargs: Any) -> None:
        super().__init__(cfg, dictionary, embed_tokens, **kwargs)
        _check_options(self, cfg)
        self.block_size = int(cfg.block_size)
        self.causal_prefix = str(cfg.prefix_attention) == "causal"
        # One vector for each distance from the prefix. The vectors are weights of the drafter:
        # mask symbols would make its dictionary differ from the verifier's.
        self.mask_vectors = nn.Parameter(torch.empty(self.block_size, self.embed_dim))
        nn.init.normal_(self.mask_vectors, std=self.embed_dim**-0.5)
        self.chain: Optional[ChainHead] = None
        if cfg.chain_units > 0:
            self.chain = ChainHead(self.output_embed_dim, self.embed_dim, cfg.chain_units)

    def block_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: Dict[str, List[Tensor]],
        blocks: Blocks,
        revealed: Optional[Tensor] = None,
    ) -> Tensor:
        """Decoder states at the hidden positions, from which the tokens are predicted.

        Args:
            prev_output_tokens: (rows, length) the shifted target.
            encoder_out: fairseq's encoder output.
            blocks: the hidden blocks.
            revealed: (rows, blocks, k) true where the reference replaces the mask.

        Returns:
            (rows, blocks, k, dim).
        """
        rows, length = prev_output_tokens.shape
        x = self._embedded(prev_output_tokens, blocks, revealed).transpose(0, 1)
        allowed = may_attend(blocks, length, self.causal_prefix)
        mask = torch.zeros(allowed.shape, dtype=x.dtype, device=x.device)
        mask.masked_fill_(~allowed, float("-inf"))
        mask = mask.repeat_interleave(self.cfg.decoder.attention_heads, dim=0)
        padding = encoder_out["encoder_padding_mask"]
        for layer in self.layers:
            x, _, _ = layer(
                x,
                encoder_out["encoder_out"][0],
                padding[0] if padding else None,
                self_attn_mask=mask,
            )
        x = x[length:].transpose(0, 1).reshape(*blocks.targets.shape, -1)
        if self.layer_norm is not None:
            x = self.layer_norm(x)
        x = x if self.project_out_dim is None else self.project_out_dim(x)
        if self.chain is None:
            return x
        last = prev_output_tokens.gather(1, blocks.starts).unsqueeze(2)
        before = torch.cat([last, blocks.targets[:, :, :-1]], dim=2)
        return self.chain(x, self._vectors(before))

    def _embedded(self, tokens: Tensor, blocks: Blocks, revealed: Optional[Tensor]) -> Tensor:
        """(rows, length + blocks · k, dim): the layout of :mod:`..data.block_masking`."""
        rows, length = tokens.shape
        x = self._vectors(tokens)
        masks = self.embed_scale * self.mask_vectors.to(x.dtype)
        hidden = masks.expand(*blocks.targets.shape, -1)
        if revealed is not None:
            reference = self._vectors(blocks.targets)
            hidden = torch.where(revealed.unsqueeze(-1), reference, hidden)
        x = torch.cat([x, hidden.reshape(rows, -1, self.embed_dim)], dim=1)
        if self.embed_positions is not None:
            positions = input_positions(blocks, length)
            vectors = position_vectors(self.embed_positions, positions, self.padding_idx)
            x = x + vectors.to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _vectors(self, tokens: Tensor) -> Tensor:
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        return x if self.project_in_dim is None else self.project_in_dim(x)


def _check_options(decoder: TransformerDecoderBase, cfg: Any) -> None:
    """Raise PluginError for options that a drafter cannot be trained or run with."""
    if decoder.adaptive_softmax is not None:
        raise PluginError(
            "A drafter cannot have an adaptive softmax, because it projects whole blocks at "
            "once: leave --adaptive-softmax-cutoff out. (A drafter for a verifier that has one "
            "cannot be warm-started from it.)"
        )
    if decoder.cross_self_attention:
        raise PluginError(
            "A drafter cannot attend to source and target at once, because its masks would see "
            "future target tokens: leave --cross-self-attention out. (A drafter for a verifier "
            "that does so cannot be warm-started from it.)"
        )
    if cfg.no_cross_attention:
        raise PluginError(
            "A drafter without cross-attention would not see the source: leave "
            "--no-cross-attention out."
        )
    if cfg.block_size < 1 or cfg.chain_units < 0:
        raise PluginError(
            f"--block-size {cfg.block_size} --chain-units {cfg.chain_units}: a drafter needs "
            "a block size of 1 or more, and 0 or more chain units."
        )


def position_vectors(table: nn.Module, positions: Tensor, padding_idx: int) -> Tensor:
    """Position embeddings by position index (fairseq's own forward counts non-padding tokens).

    Masks past the end of a learned table share its last vector. They are never scored.

    Args:
        table: fairseq's learned or sinusoidal position embedding.
        positions: (rows, inputs) positions in the sentence, from 0.
        padding_idx: fairseq's position indices start after it.

    Returns:
        (rows, inputs, dim).
    """
    index = positions + padding_idx + 1
    if isinstance(table, LearnedPositionalEmbedding):
        return nn.functional.embedding(index.clamp(max=table.num_embeddings - 1), table.weight)
    assert isinstance(table, SinusoidalPositionalEmbedding)
    # fairseq's module extends its table for an input one token longer.
    needed = int(index.max()) - padding_idx
    if needed + padding_idx >= table.weights.size(0):
        table(positions.new_full((1, needed), padding_idx + 1))
    return table.weights[index]


@register_model("block_nat")
class BlockNATModel(SharingModel):
    """Encoder and block-NAT decoder, with fingerprints of the dictionaries and shared encoder."""

    partner = "shared_encoder"

    def attach_encoder(self, encoder: Any) -> None:
        """Share a verifier's encoder (``--share-encoder``)."""
        self.shared_encoder = fingerprint_of_module(encoder)
        self.encoder.attach(encoder)

    def shares_encoder_of(self, verifier: Any) -> bool:
        """Whether the drafter was trained with the encoder of ``verifier``."""
        return torch.equal(self.shared_encoder.cpu(), fingerprint_of_module(verifier.encoder))

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add the options of a Transformer and of :class:`BlockNATConfig`."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, BlockNATConfig(), delete_default=True)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: Any) -> Any:
        """fairseq's encoder, or a stand-in for the verifier's."""
        if args.share_encoder:
            return FrozenEncoder(src_dict)
        return super().build_encoder(args, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: Any) -> BlockNATDecoder:
        """The decoder with mask vectors."""
        return BlockNATDecoder(args, tgt_dict, embed_tokens)

    def forward(  # training arguments differ from those of an autoregressive model
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        blocks: Blocks,
        glancing: Optional[Glancing] = None,
    ) -> BlockPrediction:
        """Predict hidden blocks, with one glancing pass before if ``glancing`` is given.

        Args:
            src_tokens: (rows, source) source tokens.
            src_lengths: (rows,) their number.
            prev_output_tokens: (rows, length) the shifted target.
            blocks: the hidden blocks.
            glancing: λ and noise; None in validation.

        Returns:
            predictions at the positions that remain hidden.
        """
        encoder_out = self.encoder(src_tokens, src_lengths=src_lengths)
        scored = blocks.scored
        revealed = None
        if glancing is not None:
            with torch.no_grad():
                features = self.decoder.block_features(prev_output_tokens, encoder_out, blocks)
                first = self.decoder.output_layer(features[scored]).argmax(-1)
            wrong = torch.zeros_like(scored)
            wrong[scored] = first != blocks.targets[scored]
            revealed = glance(wrong, scored, glancing.ratio, glancing.noise)
            scored = scored & ~revealed
        features = self.decoder.block_features(prev_output_tokens, encoder_out, blocks, revealed)
        return BlockPrediction(self.decoder.output_layer(features[scored]), scored, encoder_out)


@register_model_architecture("block_nat", "block_nat")
def block_nat(args: Namespace) -> None:
    """Transformer base with the drafter's defaults."""
    fill_in(args, BlockNATConfig())
    base_architecture(args)
