"""``--decoding input-guided``: the source is the draft."""

import sys
from dataclasses import dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum

from ...decoding.drafter import Drafter
from ...decoding.preference import Preference
from ...errors import PluginError
from ..block_nat.method import build_drafter
from ..options import (
    BlockSizeOptions,
    DraftConfidenceOptions,
    DrafterOptions,
    DrafterPathOptions,
    DraftRowsOptions,
    Range,
    VerifierOptions,
    option,
)
from ..registry import Method, Need, register_method
from ..setup import Setup
from .copy_bias import CopyBias
from .drafter import InputGuidedDrafter

FALLBACK_CHOICES = ChoiceEnum(["nat", "ngram"])

#: Tokens that a draft has at most on a CPU: those behind a rejected token are wasted. Of 4 to 64
#: it was the best for sentences in which one symbol of ten changes.
BLOCK_ON_CPU = 8
_TRAINED = Need("fallback", "nat")


@dataclass
class InputGuidedOptions(
    VerifierOptions,
    DrafterPathOptions,
    BlockSizeOptions,
    DraftConfidenceOptions,
    DraftRowsOptions,
    DrafterOptions,
):
    """The flags of input-guided decoding."""

    fallback: Optional[FALLBACK_CHOICES] = option(
        None,
        "input-guided: what is drafted where no end of the output occurs exactly once in the "
        "source. nat: the draft of --drafter-path. ngram: what follows the longest match, of "
        "several the nearest; without a match, or with a single symbol far away, the source as if "
        "each symbol replaced one. Default: nothing",
    )
    copy_bias: float = option(
        0.0,
        "input-guided: number that is added to the log-probability of the source's next token "
        "before the most probable token is chosen. Above 0 less of the source is changed, below 0 "
        "more, so that the output is not that of greedy decoding. Printed scores are without it",
        Range(-100, "give a number from -100 to less than 100", below=100),
    )


@register_method("input-guided")
class InputGuided(Method):
    """Input-guided aggressive decoding (Ge et al., 2022, section 3.1)."""

    summary = "drafts what follows in the source, for corrections and similar tasks"
    Config = InputGuidedOptions
    needs = dict.fromkeys(
        ["drafter_path", "draft_confidence", "drafter_dtype", "drafter_vocab_clusters"], _TRAINED
    )

    @classmethod
    def check(cls, cfg: Any) -> None:
        if str(cfg.fallback) == "nat" and cfg.drafter_path is None:
            raise PluginError("--fallback nat needs a drafter: add --drafter-path DRAFTER.pt.")
        if cfg.copy_bias and cfg.certified_projection:
            raise PluginError(
                f"--copy-bias {cfg.copy_bias:g} changes which token is chosen, and "
                "--certified-projection finds the most probable one: leave one of them out."
            )

    @classmethod
    def max_rows(cls, setup: Setup) -> Optional[int]:
        """Copies cost nothing and are often right, so that they are tried with any number."""
        return setup.draft_rows(None)

    @classmethod
    def preference(cls, setup: Setup) -> Optional[Preference]:
        bias = setup.cfg.copy_bias
        return CopyBias(setup.symbols(), bias, setup.backend) if bias else None

    @classmethod
    def build(cls, setup: Setup) -> Drafter:
        cfg, fallback = setup.cfg, None
        if cfg.drafter_path is not None:
            fallback = build_drafter(setup, cfg.block_size, cut=True, verified=True)
        return InputGuidedDrafter(
            setup.symbols(),
            cfg.block_size or (BLOCK_ON_CPU if setup.on_cpu else sys.maxsize),
            longest=str(cfg.fallback) == "ngram",
            fallback=fallback,
            fallback_rows=setup.usual_rows,
            backend=setup.backend,
        )
