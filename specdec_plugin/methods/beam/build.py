"""From flags to a beam search."""

from typing import Any, Optional

from ...errors import PluginError
from ...fairseq_compat.generation import check_counts
from ...fairseq_compat.strategies import strategy_of
from ..setup import Setup
from .native import StepDrafter
from .search import BeamSearch

#: Flags about drafts of the best symbol, or about finding it, which several beams do not read.
OF_ONE_BEAM = frozenset(
    [
        "top_beta", "certified_projection", "approximate_scores", "drafter_vocab_clusters",
        "drafter_path", "draft_confidence", "draft_rows",
    ]
)  # fmt: skip


def has_beams(generation: Any) -> bool:
    """Whether fairseq's options ask for a search with several beams."""
    return generation.beam > 1 and not getattr(generation, "sampling", False)


def check_beams(generation: Any, default: Optional[int] = None) -> None:
    """Refuse fairseq's generation options that ask for more hypotheses than there are.

    Args:
        generation: the options.
        default: the method's own ``--beam``, which the user may not have typed.

    Raises:
        PluginError: it names both options.
    """
    check_counts(generation, typed=True)
    beam, nbest = generation.beam, getattr(generation, "nbest", 1)
    if nbest > beam:
        told = ", the method's default" if beam == default else ""
        raise PluginError(
            f"--nbest {nbest} with --beam {beam}{told}: a search finds as many hypotheses as it "
            f"has beams. Give --beam {nbest} or more, or a smaller --nbest."
        )


def build_search(setup: Setup, ahead: Optional[StepDrafter] = None) -> BeamSearch:
    """The search with ``--beam`` hypotheses; ``ahead`` drafts its steps.

    Raises:
        PluginError: there are fewer symbols than beams, or than a strategy compares.
    """
    beam, symbols = setup.generation.beam, len(setup.task.target_dictionary)
    if beam > symbols - 1:
        raise PluginError(
            f"--beam {beam}: the target dictionary has {symbols} symbols, so that at most "
            f"{symbols - 1} can be compared. Give --beam {symbols - 1} or less."
        )
    workers = setup.cfg.decoding_workers
    strategy = strategy_of(setup.task.target_dictionary, setup.eos, setup.generation)
    if strategy is not None and 2 * beam > symbols:
        raise PluginError(
            f"--beam {beam}: this search compares {2 * beam} symbols, and the target dictionary "
            f"has {symbols}. Give --beam {symbols // 2} or less."
        )
    return BeamSearch(
        setup.verifier, setup.statistics, setup.lengths, beam, ahead, workers, strategy
    )
