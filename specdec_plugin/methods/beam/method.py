"""``--decoding beam``: fairseq's beam search, faster."""

from typing import Any, ClassVar

from ...fairseq_compat.language_models import OF_LANGUAGE_MODELS
from ...fairseq_compat.strategies import OF_STRATEGIES
from ..options import WorkerOptions
from ..registry import BENCH_BEAM, Method, Variant, register_method
from ..setup import Setup
from .build import build_search, check_beams
from .search import BeamSearch


@register_method("beam")
class Beam(Method):
    """The n-best lists of fairseq's ``SequenceGenerator`` with ``--beam`` hypotheses."""

    summary = "fairseq's beam search with --beam hypotheses"
    Config: ClassVar[Any] = WorkerOptions
    default_beam = None
    honours = (
        frozenset(["nbest", "match_source_len", "no_repeat_ngram_size"])
        | OF_STRATEGIES
        | OF_LANGUAGE_MODELS
    )
    variants = (Variant("beam", beam=BENCH_BEAM),)

    @classmethod
    def check_search(cls, generation: Any) -> None:
        """Refuse to print more hypotheses than there are."""
        check_beams(generation)

    @classmethod
    def loop(cls, setup: Setup) -> BeamSearch:
        """The search."""
        return build_search(setup)
