"""``--decoding blockwise``: the model's own proposal heads draft."""

import logging
from dataclasses import dataclass
from typing import Any, Optional

import torch
from fairseq.dataclass import ChoiceEnum

from ...decoding.acceptance import Distance, MinBlock, Rule, TopBeta
from ...decoding.drafter import Drafter
from ...decoding.symbols import numbers_of
from ...engine import CachedDecoder
from ...errors import PluginError
from ...fairseq_compat.pairing import check_pair
from ...models.blockwise_transformer import BlockwiseTransformerModel
from ..options import (
    BlockSizeOptions,
    DraftConfidenceOptions,
    DrafterOptions,
    DrafterPathOptions,
    DraftRowsOptions,
    Range,
    TopBetaOptions,
    VerifierOptions,
    option,
)
from ..registry import Method, Need, register_method
from ..setup import Setup, warn_of_drafter_dtype
from .drafter import BlockwiseDrafter
from .proposals import Proposals

logger = logging.getLogger(__name__)

ACCEPTANCE_CHOICES = ChoiceEnum(["exact", "top-k", "distance"])


@dataclass
class BlockwiseOptions(
    VerifierOptions,
    DrafterPathOptions,
    BlockSizeOptions,
    DraftConfidenceOptions,
    DraftRowsOptions,
    TopBetaOptions,
    DrafterOptions,
):
    """The flags of blockwise decoding."""

    acceptance: ACCEPTANCE_CHOICES = option(
        "exact",
        "blockwise: accept drafted tokens that are the model's best; among its --top-beta best; "
        "or, for symbols that are numbers, at most --epsilon from its best",
    )
    epsilon: float = option(
        2.0,
        "--acceptance distance: ε, the greatest distance of an accepted number",
        Range(0, "give a distance of 0 or more"),
    )
    min_block: int = option(
        1,
        "blockwise: ℓ, the least number of tokens that each iteration but the first adds, right or "
        "wrong (unless one of them would end the sentence)",
        Range(1, "give 1 or more, or leave it out"),
    )


@register_method("blockwise")
class Blockwise(Method):
    """Blockwise parallel decoding (Stern et al., 2018)."""

    summary = "the model's own proposal heads draft"
    Config = BlockwiseOptions
    needs = {
        "top_beta": Need("acceptance", "top-k"),
        "epsilon": Need("acceptance", "distance"),
    }

    @classmethod
    def check(cls, cfg: Any) -> None:
        if str(cfg.acceptance) == "top-k" and cfg.top_beta < 2:
            raise PluginError(
                "--acceptance top-k accepts some of the model's best tokens: add --top-beta with 2 "
                "or more, or leave --acceptance out."
            )

    @classmethod
    def rule(cls, setup: Setup) -> Rule:
        """What ``--acceptance`` and ``--min-block`` name."""
        cfg = setup.cfg
        rule: Rule = TopBeta(cfg.top_beta)
        if str(cfg.acceptance) == "distance":
            numbers = numbers_of(setup.task.target_dictionary)
            if bool(numbers.isnan().all()):
                raise PluginError(
                    "--acceptance distance compares numbers, and no symbol of the target "
                    "dictionary is one: give --acceptance top-k, or leave it out."
                )
            rule = Distance(numbers, cfg.epsilon)
        return MinBlock(rule, cfg.min_block, setup.eos) if cfg.min_block > 1 else rule

    @classmethod
    def max_rows(cls, setup: Setup) -> Optional[int]:
        """Any number with ``--min-block``: the output must not depend on how many rows are left."""
        return setup.draft_rows(None if setup.cfg.min_block > 1 else setup.usual_rows)

    @classmethod
    def build(cls, setup: Setup) -> Drafter:
        cfg = setup.cfg
        model, engine = _load_heads(setup), setup.verifier.engines[0]
        if not isinstance(engine, CachedDecoder):
            raise PluginError(
                "--decoding blockwise reads the states of the model in --path, which are "
                f"unavailable, because {CachedDecoder.unsupported(setup.models[0].decoder)}. Use "
                "--decoding greedy."
            )
        return BlockwiseDrafter(
            _proposals(setup, model, engine),
            setup.verifier,
            setup.eos,
            cfg.draft_confidence,
            cfg.min_block - 1,
            setup.statistics,
        )


def _proposals(setup: Setup, model: BlockwiseTransformerModel, engine: CachedDecoder) -> Proposals:
    """The heads, ready to run."""
    cfg, k = setup.cfg, setup.cfg.block_size or model.block_size
    if not 2 <= k <= model.block_size:
        raise PluginError(
            f"--block-size {cfg.block_size}: these proposal heads were trained with "
            f"{model.block_size}. Give 2 to {model.block_size}, or leave it out."
        )
    if cfg.min_block > k:
        raise PluginError(
            f"--min-block {cfg.min_block}: an iteration adds {k} tokens at most. Give 1 to {k}."
        )
    wanted, clusters = setup.drafter_dtype, setup.drafter_clusters(setup.models[0])
    if clusters is not None and wanted is not None and not wanted.is_floating_point:
        raise PluginError(
            f"--drafter-dtype {cfg.drafter_dtype} is unavailable for proposal heads with "
            "--drafter-vocab-clusters: leave it out, or give bfloat16 or float32."
        )
    default = torch.int8 if setup.on_cpu and clusters is None else None
    proposals = Proposals(model.heads, engine, k, wanted or default, clusters)
    if cfg.drafter_path is not None:
        proposals.release()
    if wanted not in (None, proposals.weight_type):
        warn_of_drafter_dtype(setup)
    return proposals


def _load_heads(setup: Setup) -> BlockwiseTransformerModel:
    """The model that has the heads: the first of --path, or that of --drafter-path."""
    path, base = setup.cfg.drafter_path, setup.models[0]
    model = base if path is None else setup.drafter_model
    if not isinstance(model, BlockwiseTransformerModel):
        named = "The model in --path" if path is None else path
        raise PluginError(
            f"{named} has no proposal heads, which --decoding blockwise drafts with: train some "
            "with --task blockwise_translation --arch blockwise_transformer, and give a whole "
            "model as --path, or heads alone as --drafter-path."
        )
    check_pair(path or "The model in --path", model, *setup.dictionaries)
    if path is None:
        return model
    width = getattr(base.decoder, "output_embed_dim", None)
    if model.heads.dim != width:
        raise PluginError(
            f"The proposal heads of {path} read states of {model.heads.dim} numbers, and the model "
            f"in --path has {width or 'none'}. Give the model that they were trained for, or train "
            "heads for this one."
        )
    if not model.belongs_to(base):
        logger.warning(
            f"The proposal heads of {path} were trained for another model than the one in --path. "
            "The output stays that of greedy decoding, but few drafts will be accepted: train "
            "heads for this model."
        )
    weight = next(base.parameters())
    return model.to(device=weight.device, dtype=weight.dtype)
