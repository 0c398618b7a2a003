"""``--decoding specdec --drafter-path`` and ``--decoding nat``: a trained block-NAT drafter."""

import logging
from dataclasses import dataclass
from typing import Any, Optional, Sequence

import torch
from fairseq.models.transformer import TransformerEncoderBase

from ...decoding.drafter import Drafter
from ...engine import CachedDecoder
from ...errors import PluginError
from ...fairseq_compat.pairing import check_pair
from ...models.block_nat import BlockNATModel
from ...models.frozen import FrozenEncoder
from ..options import (
    BlockSizeOptions,
    DraftConfidenceOptions,
    DrafterOptions,
    DrafterPathOptions,
    DraftRowsOptions,
    ToleranceOptions,
    VerifierOptions,
)
from ..registry import Method, Variant, register_method
from ..self_draft.method import SelfDraft
from ..setup import Setup, warn_of_drafter_dtype
from .drafter import NATDrafter

logger = logging.getLogger(__name__)

#: Where a draft ends on a CPU: of 0 to 0.35, this and 0.1 were the fastest.
_CONFIDENCE = 0.2
#: Drafts that the loop may choose where no length is given, beside those of the trained k tokens.
SHORTER = (4,)


@dataclass
class UnverifiedOptions(DrafterPathOptions, BlockSizeOptions, DrafterOptions):
    """The flags of a drafter that is not verified."""


@dataclass
class BlockNATOptions(
    UnverifiedOptions, VerifierOptions, DraftConfidenceOptions, DraftRowsOptions, ToleranceOptions
):
    """The flags of a drafter that is verified."""


@register_method("specdec")
class BlockNAT(SelfDraft):
    """Speculative decoding with a trained drafter (Xia et al., 2023)."""

    summary = ""  # the self-draft's, which has the same name, describes both
    honours = frozenset(["sampling"])
    Config = BlockNATOptions
    condition = "--drafter-path DRAFTER.pt"
    variants = (Variant("specdec", frozenset(["top_beta", "tolerance"])), Variant("specdec++"))

    @classmethod
    def applies(cls, cfg: Any) -> bool:
        """With a drafter."""
        return cfg.drafter_path is not None

    @classmethod
    def build(cls, setup: Setup) -> Drafter:
        return build_drafter(setup, setup.cfg.block_size, verified=True)


@register_method("nat")
class UnverifiedBlockNAT(Method):
    """The drafter alone: its output is its own."""

    summary = "the drafter alone, without verification"
    Config = UnverifiedOptions
    verifies = False
    honours = frozenset()

    @classmethod
    def build(cls, setup: Setup) -> Drafter:
        drafter = build_drafter(setup, setup.cfg.block_size, with_scores=True)
        if drafter.positions is not None:
            # A block starts one position behind the tokens before it.
            most = min(setup.lengths.max_positions, drafter.positions - 1)
            setup.lengths.max_positions = most
        return drafter


def build_drafter(
    setup: Setup,
    block_size: int,
    with_scores: bool = False,
    cut: bool = False,
    verified: bool = False,
) -> NATDrafter:
    """Load what ``--drafter-path`` names.

    Args:
        setup: see :class:`..setup.Setup`.
        block_size: k; 0 for what the drafter was trained with.
        with_scores: see :class:`.drafter.NATDrafter`.
        cut: use the trained k where ``block_size`` is greater, instead of an error.
        verified: drafts are not the output, so that the fastest ones are the default.

    Raises:
        PluginError: the drafter does not fit.
    """
    model = _load(setup)
    trained = model.decoder.block_size
    if block_size > trained and not cut:
        raise PluginError(
            f"--block-size {block_size}: this drafter was trained with {trained}. Give 1 to "
            f"{trained}, or leave it out."
        )
    shared = None
    if isinstance(model.encoder, FrozenEncoder):
        shared = _shared_encoder(model, setup.models)
    dtype, confidence = setup.drafter_dtype, setup.cfg.draft_confidence
    if verified:
        dtype = dtype or _fastest_dtype(setup, model)
        confidence = confidence or (_CONFIDENCE if setup.on_cpu else 0.0)
    drafter = NATDrafter(
        model,
        min(block_size or trained, trained),
        shared=shared,
        dtype=dtype,
        with_scores=with_scores,
        confidence=confidence,
        statistics=setup.statistics,
        clusters=setup.drafter_clusters(model),
        backend=setup.backend,
        lengths=SHORTER if verified and block_size == 0 and setup.on_cpu else (),
    )
    drafter.release()
    if setup.drafter_dtype not in (None, drafter.engine.weight_type):
        warn_of_drafter_dtype(setup)
    return drafter


def _fastest_dtype(setup: Setup, model: BlockNATModel) -> Optional[torch.dtype]:
    """The type in which a drafter whose drafts are verified is fastest; None: the model's own."""
    if setup.on_cpu:
        kernels = setup.backend.unsupported(next(model.parameters()), torch.int8) is None
        return torch.int8 if kernels else None
    return torch.float16 if setup.backend.static else None


def _load(setup: Setup) -> BlockNATModel:
    """The drafter's model, in the type and on the device of the verifier."""
    path = setup.cfg.drafter_path
    if path is None:
        raise PluginError(
            f"--decoding {setup.cfg.decoding} needs a drafter: add --drafter-path DRAFTER.pt "
            "(train one with --task block_nat_translation), or use another --decoding."
        )
    drafter = setup.drafter_model
    if not isinstance(drafter, BlockNATModel):
        raise PluginError(
            f"{path} is not a drafter but a {type(drafter).__name__}. Give a model trained with "
            "--arch block_nat."
        )
    check_pair(path, drafter, *setup.dictionaries)
    reason = CachedDecoder.unsupported(drafter.decoder)
    if reason is not None:
        raise PluginError(
            f"{path} cannot draft, because {reason}. Train a drafter without that option."
        )
    weight = next(setup.models[0].parameters())
    return drafter.to(device=weight.device, dtype=weight.dtype)


def _shared_encoder(drafter: BlockNATModel, models: Sequence[Any]) -> int:
    """Which verifier's encoder the drafter was trained with.

    Else the first that it can read, with a warning; PluginError if there is none.
    """
    for index, model in enumerate(models):
        if drafter.shares_encoder_of(model):
            return index
    width = drafter.decoder.layers[0].encoder_attn.kdim
    readable = [index for index, model in enumerate(models) if _encoder_width(model) == width]
    if not readable:
        raise PluginError(
            f"The drafter shares the encoder of a Transformer that is {width} wide, and the model "
            "in --path has another. Give the verifier that the drafter was trained with, or train "
            "a drafter for this one."
        )
    logger.warning(
        "The drafter was trained with the encoder of another verifier. The output stays that of "
        "greedy decoding, but few drafts will be accepted: train a drafter for this verifier."
    )
    return readable[0]


def _encoder_width(model: Any) -> Optional[int]:
    """The size of a Transformer encoder's states; None for other encoders."""
    if not isinstance(model.encoder, TransformerEncoderBase):
        return None
    return int(model.encoder.embed_tokens.embedding_dim)
