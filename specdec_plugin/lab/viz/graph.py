"""The decoding dependency graph (Santilli et al., 2023, sections 3.5, 4.3, Figure 4).

A token *settles* in the first iteration from which on it equals the final output. Tokens
that settle in the same iteration were decoded in parallel: none of them had to wait for
another. A token depends on those before it that settled earlier. This is what the
iterations show, an upper bound of what the model looks at: a token may have settled
late for the sake of one neighbour, and it counts as dependent on all that were there before.
"""

from collections import Counter
from typing import List, Sequence, Tuple

from torch import Tensor

#: From and to: positions counted from 0.
Edge = Tuple[int, int]


def settling_iterations(right: Tensor) -> List[int]:
    """When each token settled, iterations counted from 1.

    Args:
        right: (iterations, m) true where a token equals the final output; the last row is true.

    Returns:
        m numbers; that of position i (from 0) is at most i + 1 in a Jacobi iteration.
    """
    wrong_after = (~right).flip(0).long().cumsum(0).flip(0) > 0  # (iterations, m)
    return [count + 1 for count in wrong_after.sum(0).tolist()]


def drawn_edges(settled: Sequence[int]) -> List[Edge]:
    """The edges that are drawn: those that no path of other edges implies.

    An edge from i to j is left out if a token between them depends on i and j depends on
    that token. Figure 4 leaves such edges out for tokens that were decoded alone; here
    they are left out for all, since a group of parallel tokens late in a sentence would
    else get an edge from every token before it.

    Args:
        settled: the settling iteration of each token.

    Returns:
        (i, j) sorted by j, then i: the transitive reduction of all edges. Tokens of iteration 1
        have none to the left: they depend on the source alone.
    """
    edges: List[Edge] = []
    for position, when in enumerate(settled):
        latest = 0  # the latest settling iteration, before `when`, right of `earlier`
        found = []
        for earlier in range(position - 1, -1, -1):
            if latest <= settled[earlier] < when:
                # Nothing between settled later than it and earlier than `when`.
                found.append((earlier, position))
                latest = settled[earlier]
        edges += reversed(found)
    return edges


def parallel(settled: Sequence[int]) -> List[bool]:
    """Which tokens settled in the same iteration as another one."""
    sizes = Counter(settled)
    return [sizes[when] > 1 for when in settled]
