"""``--decoding beam``: fairseq's beam search, faster."""

from typing import Any, ClassVar, Optional

from ...errors import PluginError
from ..options import ModelOptions
from ..registry import Method, register_method
from ..setup import Setup
from .search import BeamSearch


@register_method("beam")
class Beam(Method):
    """The n-best lists of fairseq's ``SequenceGenerator`` with ``--beam`` hypotheses."""

    summary = "fairseq's beam search with --beam hypotheses"
    Config: ClassVar[Any] = ModelOptions
    default_beam = None
    honours = frozenset(["nbest", "match_source_len", "no_repeat_ngram_size"])

    @classmethod
    def check_search(cls, generation: Any) -> None:
        """Refuse to print more hypotheses than there are."""
        beam, nbest = generation.beam, getattr(generation, "nbest", 1)
        if beam < 1:
            raise PluginError(f"--beam {beam}: give 1 or more.")
        if nbest > beam:
            raise PluginError(
                f"--nbest {nbest} with --beam {beam}: a search finds as many hypotheses as it has "
                f"beams. Give --beam {nbest} or more, or a smaller --nbest."
            )

    @classmethod
    def unavailable(cls, generation: Any) -> Optional[str]:
        """Alignments of several hypotheses are fairseq's."""
        if getattr(generation, "print_alignment", None) is not None and generation.beam > 1:
            return "--print-alignment is given for more than one beam"
        return None

    @classmethod
    def build(cls, setup: Setup) -> None:
        """Nothing is drafted."""

    @classmethod
    def loop(cls, setup: Setup) -> BeamSearch:
        """The search."""
        assert setup.verifier is not None
        beam, symbols = setup.generation.beam, len(setup.task.target_dictionary)
        if beam > symbols - 1:
            raise PluginError(
                f"--beam {beam}: the target dictionary has {symbols} symbols, so that at most "
                f"{symbols - 1} can be compared. Give --beam {symbols - 1} or less."
            )
        return BeamSearch(setup.verifier, setup.statistics, setup.lengths, beam)
