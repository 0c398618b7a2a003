"""The drafter: a block non-autoregressive Transformer (Xia et al., 2023, section 3).

The decoder reads [prefix ; k mask vectors] and predicts the k hidden tokens at
once.  It is fairseq's own decoder with one parameter more, so that the engine
which runs verifiers fast runs drafters too.
"""

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass, field
from typing import Any, Dict, List, NamedTuple, Optional

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerDecoderBase, TransformerModel
from fairseq.models.transformer.transformer_legacy import base_architecture
from fairseq.modules import LearnedPositionalEmbedding, SinusoidalPositionalEmbedding
from torch import Tensor, nn

from ..data.block_masking import Blocks, glance, input_slots, may_attend
from ..errors import PluginError
from ..fairseq_compat.pairing import fingerprint_of_dictionary, fingerprint_of_module
from .chain_head import ChainHead
from .frozen_encoder import FrozenEncoder

PREFIX_ATTENTION_CHOICES = ChoiceEnum(["full", "causal"])


@dataclass
class BlockNATConfig(FairseqDataclass):
    """What a block-NAT drafter adds to the options of a Transformer."""

    block_size: int = field(
        default=10,
        metadata={"help": "k: tokens that the drafter predicts at once"},
    )
    prefix_attention: PREFIX_ATTENTION_CHOICES = field(
        default="causal",
        metadata={
            "help": "causal: prefix tokens see only the prefix, so that the drafter keeps them in "
            "a cache and trains on many blocks a sentence; full: they see the masks too, as in "
            "the papers, and are computed again for each block"
        },
    )
    share_encoder: bool = field(
        default=False,
        metadata={
            "help": "use the verifier's encoder, frozen: the drafter stores, trains and runs only "
            "its decoder; needs --verifier-path in training"
        },
    )
    chain_units: int = field(
        default=0,
        metadata={
            "help": "choose the tokens of a block one after another, each knowing those before it "
            "in the block, by a recurrent layer of so many units behind the decoder; 0: choose "
            "each for itself, as the papers do"
        },
    )


class Glancing(NamedTuple):
    """How many reference tokens the second pass may see: λ, and (rows, blocks, k) noise."""

    ratio: float
    noise: Tensor


class BlockPrediction(NamedTuple):
    """What the drafter predicts for a batch of hidden blocks.

    Attributes:
        logits: (scored positions, vocabulary).
        scored: (rows, blocks, k) true at those positions, in the same order.
        encoder_out: what was predicted from.
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
        # One vector for each distance from the prefix. They are weights of the drafter, not
        # symbols of the dictionary: a symbol would make drafter and verifier unlike.
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
        """Decoder states at the hidden positions, from which the tokens are chosen.

        Args:
            prev_output_tokens: (rows, length) the shifted target.
            encoder_out: fairseq's encoder output.
            blocks: what is hidden.
            revealed: (rows, blocks, k) true where the reference replaces the mask.

        Returns:
            (rows, blocks, k, dim).
        """
        rows, length = prev_output_tokens.shape
        x = self._embedded(prev_output_tokens, blocks, revealed).transpose(0, 1)
        seen = may_attend(blocks, length, self.causal_prefix)
        hidden = torch.zeros(seen.shape, dtype=x.dtype, device=x.device)
        hidden.masked_fill_(~seen, float("-inf"))
        padding = encoder_out["encoder_padding_mask"]
        for layer in self.layers:
            heads = layer.self_attn.num_heads
            x, _, _ = layer(
                x,
                encoder_out["encoder_out"][0],
                padding[0] if padding else None,
                self_attn_mask=hidden.repeat_interleave(heads, dim=0),
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
            slots = input_slots(blocks, length)
            x = x + position_vectors(self.embed_positions, slots, self.padding_idx).to(x.dtype)
        if self.layernorm_embedding is not None:
            x = self.layernorm_embedding(x)
        return self.dropout_module(x)

    def _vectors(self, tokens: Tensor) -> Tensor:
        x = self.embed_scale * self.embed_tokens(tokens)
        if self.quant_noise is not None:
            x = self.quant_noise(x)
        return x if self.project_in_dim is None else self.project_in_dim(x)


def _check_options(decoder: TransformerDecoderBase, cfg: Any) -> None:
    """Refuse what a drafter could not be trained or run with; PluginError says which."""
    if decoder.adaptive_softmax is not None:
        raise PluginError(
            "A drafter cannot have an adaptive softmax, because whole blocks are projected at "
            "once: leave --adaptive-softmax-cutoff out. (A drafter for a verifier that has one "
            "cannot be warm-started from it.)"
        )
    if decoder.cross_self_attention:
        raise PluginError(
            "A drafter cannot attend to source and target at once, because its masks would see "
            "the target to come: leave --cross-self-attention out. (A drafter for a verifier that "
            "does so cannot be warm-started from it.)"
        )
    if cfg.block_size < 1 or cfg.chain_units < 0:
        raise PluginError(
            f"--block-size {cfg.block_size} --chain-units {cfg.chain_units}: a drafter has a "
            "block size of 1 or more, and 0 chain units or more."
        )


def position_vectors(table: nn.Module, slots: Tensor, padding_idx: int) -> Tensor:
    """Position embeddings by slot (fairseq's own forward counts non-padding tokens).

    Masks past the end of a learned table are never scored; they share its last vector.

    Args:
        table: fairseq's learned or sinusoidal position embedding.
        slots: (rows, inputs) places in the sentence, from 0.
        padding_idx: fairseq's positions start after it.

    Returns:
        (rows, inputs, dim).
    """
    index = slots + padding_idx + 1
    if isinstance(table, LearnedPositionalEmbedding):
        return nn.functional.embedding(index.clamp(max=table.num_embeddings - 1), table.weight)
    assert isinstance(table, SinusoidalPositionalEmbedding)
    # One token past the table makes fairseq's module extend it.
    needed = int(index.max()) - padding_idx
    if needed + padding_idx >= table.weights.size(0):
        table(slots.new_full((1, needed), padding_idx + 1))
    return table.weights[index]


@register_model("block_nat")
class BlockNATModel(TransformerModel):
    """Encoder and block-NAT decoder, with the fingerprints of what they belong to."""

    def __init__(self, args: Any, encoder: Any, decoder: Any) -> None:
        super().__init__(args, encoder, decoder)
        # Part of the checkpoint, so that a drafter is never paired with another dictionary
        # unnoticed; see specdec_plugin.pairing.
        self.register_buffer("source_symbols", fingerprint_of_dictionary(encoder.dictionary))
        self.register_buffer("target_symbols", fingerprint_of_dictionary(decoder.dictionary))
        self.register_buffer("shared_encoder", torch.zeros(1, dtype=torch.int64))

    def attach_encoder(self, encoder: Any) -> None:
        """Share a verifier's encoder (``--share-encoder``)."""
        self.shared_encoder = fingerprint_of_module(encoder)
        self.encoder.attach(encoder)

    def fingerprints(self) -> Dict[str, Tensor]:
        """What it was trained for, by kind; 0 where that is unknown. Copies, (1,) each."""
        names = ("source_symbols", "target_symbols", "shared_encoder")
        return {name: getattr(self, name).cpu().clone() for name in names}

    def shares_encoder_of(self, verifier: Any) -> bool:
        """Whether it was trained with the encoder of this model."""
        return torch.equal(self.shared_encoder.cpu(), fingerprint_of_module(verifier.encoder))

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        """Add the options of a Transformer and of :class:`BlockNATConfig`."""
        super().add_args(parser)
        gen_parser_from_dataclass(parser, BlockNATConfig(), delete_default=True)

    @classmethod
    def build_encoder(cls, args: Any, src_dict: Any, embed_tokens: Any) -> Any:
        """fairseq's encoder, or a place for the verifier's."""
        if args.share_encoder:
            return FrozenEncoder(src_dict)
        return super().build_encoder(args, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, args: Any, tgt_dict: Any, embed_tokens: Any) -> BlockNATDecoder:
        """The decoder with mask vectors."""
        return BlockNATDecoder(args, tgt_dict, embed_tokens)

    def forward(  # the arguments of training differ from an autoregressive model's
        self,
        src_tokens: Tensor,
        src_lengths: Tensor,
        prev_output_tokens: Tensor,
        blocks: Blocks,
        glancing: Optional[Glancing] = None,
    ) -> BlockPrediction:
        """Predict hidden blocks, after one glance at the reference if ``glancing``.

        Args:
            src_tokens: (rows, source) source tokens.
            src_lengths: (rows,) their number.
            prev_output_tokens: (rows, length) the shifted target.
            blocks: what is hidden.
            glancing: λ and noise; None in validation.

        Returns:
            predictions at the positions that stayed hidden.
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
    """Transformer base, with the drafter's defaults."""
    defaults = BlockNATConfig()
    args.block_size = getattr(args, "block_size", defaults.block_size)
    args.prefix_attention = getattr(args, "prefix_attention", defaults.prefix_attention)
    args.share_encoder = getattr(args, "share_encoder", defaults.share_encoder)
    args.chain_units = getattr(args, "chain_units", defaults.chain_units)
    base_architecture(args)
