"""From flags to a beam search."""

from typing import Any, Optional

from ...errors import PluginError
from ..setup import Setup
from .native import Drafter
from .search import BeamSearch


def check_beams(generation: Any) -> None:
    """Refuse fairseq's generation options that ask for more hypotheses than there are."""
    beam, nbest = generation.beam, getattr(generation, "nbest", 1)
    if beam < 1:
        raise PluginError(f"--beam {beam}: give 1 or more.")
    if nbest < 1:
        raise PluginError(f"--nbest {nbest}: give 1 or more.")
    if nbest > beam:
        raise PluginError(
            f"--nbest {nbest} with --beam {beam}: a search finds as many hypotheses as it has "
            f"beams. Give --beam {nbest} or more, or a smaller --nbest."
        )


def build_search(setup: Setup, ahead: Optional[Drafter] = None) -> BeamSearch:
    """The search with ``--beam`` hypotheses; ``ahead`` drafts its steps.

    Raises:
        PluginError: there are fewer symbols than beams.
    """
    assert setup.verifier is not None
    beam, symbols = setup.generation.beam, len(setup.task.target_dictionary)
    if beam > symbols - 1:
        raise PluginError(
            f"--beam {beam}: the target dictionary has {symbols} symbols, so that at most "
            f"{symbols - 1} can be compared. Give --beam {symbols - 1} or less."
        )
    workers = setup.cfg.decoding_workers
    return BeamSearch(setup.verifier, setup.statistics, setup.lengths, beam, ahead, workers)
