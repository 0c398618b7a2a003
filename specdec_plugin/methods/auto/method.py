"""``--decoding auto``: the fastest exact way.

Which way it is depends on the model, the device and the flags. Whether drafts are made, and whose,
is then measured, which the output does not depend on. The projection is certified where it can be.
"""

from dataclasses import dataclass
from typing import Any, FrozenSet, List, Type

from ...decoding.drafter import Drafter
from ...decoding.generator import Loop
from ...errors import PluginError
from ...fairseq_compat.language_models import asks_language_model
from ...fairseq_compat.strategies import strategies_given
from ...models.blockwise_transformer import BlockwiseTransformerModel
from ..beam.build import OF_ONE_BEAM
from ..beam.method import Beam
from ..block_nat.method import BlockNAT
from ..blockwise.method import Blockwise
from ..greedy.method import Greedy
from ..input_guided.drafter import InputGuidedDrafter
from ..input_guided.method import BLOCK_ON_CPU
from ..jacobi.drafter import JacobiDrafter
from ..jacobi.method import ENTRIES, adaptive_window
from ..options import (
    BlockSizeOptions,
    DraftConfidenceOptions,
    DrafterOptions,
    DrafterPathOptions,
    DraftRowsOptions,
    VerifierOptions,
)
from ..registry import Method, Variant, given_flags, register_method
from ..self_draft.method import SelfDraft
from ..self_draft.rounded_copy import CannotDraftError
from ..setup import Setup
from .drafter import OneOfDrafters


@dataclass
class AutoOptions(
    VerifierOptions,
    DrafterPathOptions,
    BlockSizeOptions,
    DraftConfidenceOptions,
    DraftRowsOptions,
    DrafterOptions,
):
    """The flags of the ways to choose from that leave the output exact."""


#: Flags about drafts: those of a trained drafter where one is given, else those of a self-draft.
_OF_DRAFTS = ("block_size", "drafter_dtype", "drafter_vocab_clusters")


class SelfOrOther(SelfDraft):
    """A self-draft, a trained drafter, or what followed in the source or before: what pays most.

    Corrections copy most of the source. Other texts have names and code in common with it, and
    repeat phrases of their own. The guard tries the last drafter first, and then the most unlike
    one, which is the first.
    """

    @classmethod
    def build(cls, setup: Setup) -> Drafter:
        own, others = super().build(setup), cls._lookups(setup)
        if setup.cfg.drafter_path is not None:
            trained = _trained(setup).build(setup)
            assert trained is not None
            others = [trained, *others]
        return OneOfDrafters([*others, own]) if others else own

    @classmethod
    def _lookups(cls, setup: Setup) -> List[Drafter]:
        """What follows the same tokens in the source, or followed them before."""
        if setup.dictionaries[0] is None:  # the source is speech
            return []
        symbols, backend = setup.symbols(), setup.backend
        window = adaptive_window(setup.on_cpu)
        before = JacobiDrafter(window, symbols, "ngram", entries=ENTRIES, backend=backend)
        if not symbols.shared():
            return [before]
        return [InputGuidedDrafter(symbols, BLOCK_ON_CPU, longest=True, backend=backend), before]


@register_method("auto")
class Auto(Method):
    """One of the other methods."""

    summary = "the fastest of the exact ways, with any --beam and --sampling"
    Config = AutoOptions
    certifies = True
    chooses = True
    honours = Beam.honours | {"beam", "sampling"}
    variants = (Variant("auto", frozenset(["drafter_path", "draft_confidence", *_OF_DRAFTS])),)

    @classmethod
    def check(cls, cfg: Any) -> None:
        """Refuse what only a trained drafter reads, without one."""
        if cfg.draft_confidence and cfg.drafter_path is None:
            raise PluginError(
                f"--draft-confidence {cfg.draft_confidence} would have no effect with --decoding "
                "auto: add --drafter-path DRAFTER.pt, or leave --draft-confidence out."
            )

    @classmethod
    def check_search(cls, generation: Any) -> None:
        """As a self-draft."""
        SelfDraft.check_search(generation)

    @classmethod
    def unread(cls, generation: Any) -> FrozenSet[str]:
        """In a beam search, flags about the best symbol; without drafts, those about drafts."""
        if not _searches(generation):
            return frozenset()
        return OF_ONE_BEAM.union(_OF_DRAFTS if _restricted(generation) else ())

    @classmethod
    def chosen(cls, setup: Setup) -> Type[Method]:
        """The method that decodes, where the model can draft for itself."""
        generation, cfg = setup.generation, setup.cfg
        if _searches(generation):
            return Beam if _restricted(generation) else SelfDraft
        if cfg.drafter_path is not None and not _may_draft_itself(setup):
            return _trained(setup)
        return SelfOrOther

    @classmethod
    def loop(cls, setup: Setup) -> Loop:
        """That of the chosen method; where nothing can draft, of the same method without drafts."""
        try:
            return cls.chosen(setup).loop(setup)
        except CannotDraftError:
            if setup.cfg.drafter_path is not None and not _searches(setup.generation):
                return _trained(setup).loop(setup)
            if given_flags(setup.cfg).keys() & {*_OF_DRAFTS}:
                raise
        return (Beam if _searches(setup.generation) else Greedy).loop(setup)


def _searches(generation: Any) -> bool:
    """Whether fairseq's options need a beam search."""
    if getattr(generation, "sampling", False):
        return False
    return generation.beam > 1 or _restricted(generation)


def _restricted(generation: Any) -> bool:
    """Whether options are given that beam search alone keeps, which drafts no steps then."""
    lengths = getattr(generation, "match_source_len", False)
    ngrams = getattr(generation, "no_repeat_ngram_size", 0)
    return bool(
        lengths or ngrams or strategies_given(generation) or asks_language_model(generation)
    )


def _trained(setup: Setup) -> Type[Method]:
    """The method that drafts with what ``--drafter-path`` names."""
    heads = isinstance(setup.drafter_model, BlockwiseTransformerModel)
    return Blockwise if heads else BlockNAT


def _may_draft_itself(setup: Setup) -> bool:
    """Whether a self-draft is tried beside a trained drafter.

    On a GPU it saved no time. Flags about drafts are about the trained drafter, and with
    ``--draft-rows`` nothing is measured.
    """
    given = given_flags(setup.cfg).keys() & {*_OF_DRAFTS, "draft_confidence", "draft_rows"}
    return not setup.backend.static and not given
