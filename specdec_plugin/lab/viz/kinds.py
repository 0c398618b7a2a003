"""The kinds of cells in the matrix, with their legends."""

from enum import StrEnum


class Kind(StrEnum):
    """The kinds; their values are the names of the page's CSS classes."""

    # Parallel Jacobi
    SETTLES = "settles"
    RIGHT = "right"
    WRONG = "wrong"
    # Speculative decoding
    BEFORE = "before"
    ACCEPTED = "accepted"
    TOP_BETA = "top-beta"
    BIFURCATION = "bifurcation"
    DISCARDED = "discarded"
    VERIFIER = "verifier"

    @property
    def legend(self) -> str:
        """What it means, in a few words."""
        return _LEGENDS[self]


_LEGENDS = {
    Kind.SETTLES: "equals the final output from here on",
    Kind.RIGHT: "equals the final output",
    Kind.WRONG: "differs from the final output",
    Kind.BEFORE: "output of earlier iterations",
    Kind.ACCEPTED: "drafted, and the verifier's best: accepted",
    Kind.TOP_BETA: "drafted, not the best but among the top-β: accepted",
    Kind.BIFURCATION: "bifurcation: drafted, and rejected by the verifier",
    Kind.DISCARDED: "drafted behind it, or behind the end: discarded",
    Kind.VERIFIER: "the verifier's own token",
}
