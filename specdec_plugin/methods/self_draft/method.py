"""``--decoding specdec`` without a drafter: the model drafts for itself, its weights rounded."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, FrozenSet, Sequence

import torch

from ...decoding.acceptance import Rule, TopBeta
from ...decoding.drafter import Drafter
from ...decoding.generator import Loop
from ...errors import PluginError
from ..beam.build import OF_ONE_BEAM, build_search, check_beams, has_beams
from ..beam.native import StepDrafter
from ..options import (
    BlockSizeOptions,
    DrafterOptions,
    DraftRowsOptions,
    ToleranceOptions,
    VerifierOptions,
)
from ..registry import BENCH_BEAM, Method, Variant, register_method
from ..setup import Setup
from . import captured_drafter
from .captured_drafter import CapturedDrafter
from .drafter import BEAM_BLOCK_SIZE, DTYPE, RELAXED_BLOCK_SIZE, SHORT, SelfDrafter
from .rounded_copy import CannotDraftError, rounded_copy


@dataclass
class SelfDraftOptions(
    VerifierOptions, BlockSizeOptions, DraftRowsOptions, ToleranceOptions, DrafterOptions
):
    """The flags of a self-draft."""


#: In ``specdec-bench``, which times it beside a trained drafter, these are the drafter's.
_OF_DRAFTERS = frozenset(["block_size", "drafter_dtype"])


@register_method("specdec")
class SelfDraft(Method):
    """Drafts with rounded weights, verifies with the model's own."""

    summary = (
        "a drafter proposes a block and the model verifies it (without --drafter-path, the model "
        "drafts with its own rounded weights)"
    )
    Config: ClassVar[Any] = SelfDraftOptions
    honours = frozenset(["beam", "nbest", "sampling"])
    variants: ClassVar[Sequence[Variant]] = (
        Variant("specdec self", _OF_DRAFTERS | {"top_beta", "tolerance"}),
        Variant("specdec++ self", _OF_DRAFTERS),
        Variant("specdec beam", _OF_DRAFTERS | OF_ONE_BEAM | {"tolerance"}, BENCH_BEAM),
    )

    @classmethod
    def applies(cls, cfg: Any) -> bool:
        """Without a drafter."""
        return cfg.drafter_path is None

    @classmethod
    def check(cls, cfg: Any) -> None:
        """Refuse a tolerance where only the best token is accepted."""
        if cfg.tolerance != math.inf and cfg.top_beta == 1:
            raise PluginError(
                f"--tolerance {cfg.tolerance} would have no effect, since only the verifier's best "
                "token is accepted: add --top-beta with 2 or more, or leave --tolerance out."
            )

    @classmethod
    def rule(cls, setup: Setup) -> Rule:
        """SpecDec, or SpecDec++ with β above 1."""
        return TopBeta(setup.cfg.top_beta, setup.cfg.tolerance)

    @classmethod
    def build(cls, setup: Setup) -> Drafter:
        cfg = setup.cfg
        if setup.verifier.static:
            return cls._captured(setup)
        exact = cfg.top_beta == 1
        return SelfDrafter(
            setup.verifier,
            cfg.block_size or (None if exact else RELAXED_BLOCK_SIZE),
            setup.drafter_dtype or DTYPE,
            setup.drafter_clusters(setup.models[0]),
            [SHORT] if exact and cfg.block_size == 0 else [],
            low_rank=exact,  # else the output would depend on earlier sentences
        )

    @classmethod
    def _captured(cls, setup: Setup) -> Drafter:
        """The copy on a GPU."""
        cfg, short = setup.cfg, captured_drafter.SHORT
        return CapturedDrafter(
            setup.verifier,
            cfg.block_size or captured_drafter.BLOCK_SIZE,
            setup.drafter_dtype or torch.float16,
            setup.drafter_clusters(setup.models[0]),
            [short] if cfg.top_beta == 1 and cfg.block_size == 0 else [],
        )

    @classmethod
    def check_search(cls, generation: Any) -> None:
        """Refuse to print more hypotheses than there are."""
        if not getattr(generation, "sampling", False):
            check_beams(generation, cls.default_beam)

    @classmethod
    def unread(cls, generation: Any) -> FrozenSet[str]:
        """With several beams, flags about the best symbol."""
        return OF_ONE_BEAM if has_beams(generation) else frozenset()

    @classmethod
    def loop(cls, setup: Setup) -> Loop:
        """With several beams, a search of which the rounded weights draft some steps."""
        cfg = setup.cfg
        if not has_beams(setup.generation):
            return super().loop(setup)
        if cfg.vocab_clusters is not None:  # drafts of all symbols would mostly be refused
            return build_search(setup)
        try:
            # Most steps of a search have to choose the same beams, so 8 bits save more than 4.
            copy = rounded_copy(setup.verifier, setup.drafter_dtype or torch.int8)
        except CannotDraftError as error:  # Trained drafters and greedy have no beams.
            raise CannotDraftError(error.cause, "Use --decoding beam.") from None
        return build_search(setup, StepDrafter(copy, cfg.block_size or BEAM_BLOCK_SIZE))
