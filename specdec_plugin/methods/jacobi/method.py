"""``--decoding jacobi``, ``gs-jacobi`` and ``hybrid-jacobi``: Jacobi solvers."""

import sys
from dataclasses import dataclass
from typing import Any, ClassVar

from fairseq.dataclass import ChoiceEnum

from ...decoding.drafter import Drafter
from ..options import (
    BlockSizeOptions,
    DraftConfidenceOptions,
    DraftRowsOptions,
    Range,
    VerifierOptions,
    option,
)
from ..registry import Method, Need, register_method
from ..setup import Setup
from .drafter import JacobiDrafter
from .ngram_lookup import Window

INIT_CHOICES = ChoiceEnum(["pad", "source", "random", "ngram"])
WINDOW_CHOICES = ChoiceEnum(["block", "sliding", "adaptive"])

#: b where none is given: the best one of Santilli et al. (2023); and of an adaptive window, the
#: most drafted positions on a CPU, where each makes an iteration a tenth longer, and elsewhere.
#: They pay while the chance that they are right is above a tenth (3+3 layers, d=256, 2 cores).
BLOCK, ADAPTIVE_BLOCKS, _MIN_CHANCE = 3, (2, 8), 0.1
#: N-grams of each order that are remembered.
ENTRIES = 65536


def adaptive_window(on_cpu: bool, block_size: int = 0, floor: float = _MIN_CHANCE) -> Window:
    """Up to ``block_size`` positions (0: the default), while they are probably right."""
    return Window(block=block_size or ADAPTIVE_BLOCKS[0 if on_cpu else 1], floor=floor)


@dataclass
class JacobiOptions(VerifierOptions, DraftRowsOptions):
    """The flags of every Jacobi solver."""

    jacobi_init: INIT_CHOICES = option(
        "ngram",
        "initial guesses: padding (that of the paper), the source's tokens, random tokens, or "
        "(ngram) what followed the last tokens earlier in the source or the output",
    )
    jacobi_pool: int = option(
        ENTRIES,
        "n-grams of each order up to 3 that are remembered from the sentences before, to guess "
        "what follows; 0: none (as in the paper)",
        Range(0, "give 0 or more"),
    )


@dataclass
class KnownLengthOptions:
    """The flag of solvers that the paper measures with a known length."""

    jacobi_known_length: bool = option(
        False,
        "jacobi, gs-jacobi: guess nothing after the length of the data's target, as if the length "
        "of the output were known (as in the paper). For measurements: a translator does not know "
        "it. The output stays the same. Give data whose targets are the model's greedy output",
    )


@dataclass
class WholeOptions(JacobiOptions, KnownLengthOptions):
    """The flags of the solver for whole sentences."""


@dataclass
class WindowOptions(JacobiOptions, BlockSizeOptions, DraftConfidenceOptions):
    """The flags of solvers that guess a window of positions."""

    jacobi_window: WINDOW_CHOICES = option(
        "adaptive",
        "gs-jacobi, hybrid-jacobi: block: one block of b tokens after the other (as in the paper); "
        "sliding: b guesses in each iteration; adaptive: up to b, while guesses of their origin "
        "were right often enough",
    )


@dataclass
class BlockOptions(WindowOptions, KnownLengthOptions):
    """The flags of the solver for blocks."""


@dataclass
class HybridOptions(WindowOptions):
    """The flags of the hybrid solver."""

    hybrid_length: int = option(
        0,
        "hybrid-jacobi: h, the tokens after which decoding is greedy; 0: the length limit",
        Range(0, "give 0 or more"),
    )


@register_method("jacobi")
class Jacobi(Method):
    """Solves for the whole sentence at once (Santilli et al., 2023, Algorithm 1)."""

    summary = "the model solves for the whole sentence at once, from guesses"
    Config: ClassVar[Any] = WholeOptions

    @classmethod
    def window(cls, setup: Setup) -> Window:
        """The positions that are guessed."""
        return Window(block=sys.maxsize)

    @classmethod
    def build(cls, setup: Setup) -> Drafter:
        cfg = setup.cfg
        return JacobiDrafter(
            cls.window(setup),
            setup.symbols(),
            str(cfg.jacobi_init),
            cfg.hybrid_length or sys.maxsize,  # other solvers refuse the flag
            cfg.jacobi_pool,
            setup.backend,
            cfg.jacobi_known_length,  # the hybrid solver refuses the flag
        )


@register_method("gs-jacobi")
class GaussSeidelJacobi(Jacobi):
    """Solves for one block after the other (Santilli et al., 2023, Algorithm 2)."""

    summary = "the same for a block at a time"
    Config: ClassVar[Any] = BlockOptions
    needs = {"draft_confidence": Need("jacobi_window", "adaptive")}

    @classmethod
    def window(cls, setup: Setup) -> Window:
        """The positions that are guessed, as ``--jacobi-window``."""
        cfg, kind = setup.cfg, str(setup.cfg.jacobi_window)
        if kind == "adaptive":
            floor = cfg.draft_confidence or _MIN_CHANCE
            return adaptive_window(setup.on_cpu, cfg.block_size, floor)
        size = cfg.block_size or BLOCK
        return Window(size - 1, size) if kind == "block" else Window(size)


@register_method("hybrid-jacobi")
class HybridJacobi(GaussSeidelJacobi):
    """The same up to a length, then greedy decoding (Santilli et al., 2023, Algorithm 3)."""

    summary = "the same up to --hybrid-length"
    Config = HybridOptions
