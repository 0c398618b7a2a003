"""MaxMatch, the M2 scorer: a hypothesis' edits, chosen so that most of them equal gold edits.

Daniel Dahlmeier and Hwee Tou Ng (2012): Better Evaluation for Grammatical Error Correction.
A hypothesis does not show which edits made it from the source: "a b" → "c d" is one edit or
two.  MaxMatch takes the edits, among all that explain the hypothesis, which have most in
common with the annotator's:

* Every shortest alignment of source and hypothesis is a path through a **lattice**, whose
  vertex (i, j) means i source tokens turned into j hypothesis tokens.  As in the CoNLL-2014
  scorer there are two kinds of shortest, a substitution counting 1 or 2, in one lattice.
* A piece of a path with at most ``max_unchanged_words`` unchanged tokens, and at least one
  changed, may be one edit.  The paper adds an edge for each such piece ("transitive edges").
* The best path has the most edits equal to gold ones; then the fewest alignment steps outside of
  those; then the fewest other edits.

The paper finds it with Bellman-Ford over all transitive edges, of which a rewritten sentence of
40 tokens has hundreds of thousands.  The lattice has no circles, so one pass from left to right
suffices here.  It tracks how many unchanged tokens the edit in progress has, and lists only the
edges that match gold edits.
"""

from typing import Dict, List, NamedTuple, Optional, Sequence, Tuple

from .annotators import Counts
from .m2 import Annotations, Edit

Tokens = Sequence[str]
Vertex = Tuple[int, int]
#: The vertices that lie on shortest alignments, in topological order, each with those next to it.
Lattice = Dict[Vertex, List[Vertex]]


class GoldEdge(NamedTuple):
    """An edge of the lattice that equals a gold edit."""

    end: Vertex
    #: How many gold insertions at this position come before it; 0 for other edits.
    rank: int


#: Of :attr:`State.unchanged`: no edit is in progress.
CLOSED = -1


class State(NamedTuple):
    """How a path has come to a vertex, as far as its next edges depend on it.

    Attributes:
        passed: gold insertions at this position that are behind it. Each gold edit matches once,
            and insertions at one position match in their order.
        unchanged: unchanged tokens that the edit in progress has, or :data:`CLOSED`.
    """

    passed: int
    unchanged: int


def count_sentence(
    source: Tokens, hypothesis: Tokens, annotations: Annotations, max_unchanged_words: int = 2
) -> List[Counts]:
    """Counts against each annotator, in the order of their numbers.

    A sentence without annotators has one who found nothing to correct.
    """
    lattice = alignment_lattice(source, hypothesis)
    counts: List[Counts] = []
    for _, gold in sorted((annotations or {0: []}).items()):
        edges = gold_edges(lattice, source, hypothesis, gold, max_unchanged_words)
        matched, proposed = best_path(lattice, source, hypothesis, edges, max_unchanged_words)
        counts.append((matched, proposed, len(gold)))
    return counts


def alignment_lattice(source: Tokens, hypothesis: Tokens) -> Lattice:
    """Every step of every shortest alignment, a substitution counting 1, or 2."""
    end = (len(source), len(hypothesis))
    steps: Dict[Vertex, List[Vertex]] = {end: []}
    for substitution in (1, 2):
        distances = levenshtein(source, hypothesis, substitution)
        reached, waiting = {end}, [end]
        while waiting:
            vertex = waiting.pop()
            i, j = vertex
            changed = 0 if i and j and source[i - 1] == hypothesis[j - 1] else substitution
            for before, cost in (((i - 1, j), 1), ((i, j - 1), 1), ((i - 1, j - 1), changed)):
                if min(before) < 0 or distances[before[0]][before[1]] + cost != distances[i][j]:
                    continue
                following = steps.setdefault(before, [])
                if vertex not in following:
                    following.append(vertex)
                if before not in reached:
                    reached.add(before)
                    waiting.append(before)
    return {vertex: steps[vertex] for vertex in sorted(steps)}


def levenshtein(
    source: Sequence[object], hypothesis: Sequence[object], substitution: int
) -> List[List[int]]:
    """Edit distances of all beginnings, ``[source tokens][hypothesis tokens]``."""
    rows = [list(range(len(hypothesis) + 1))]
    for number, token in enumerate(source, start=1):
        above, left = rows[-1], number
        row = [number]
        for diagonal, up, other in zip(above, above[1:], hypothesis):
            if token != other:
                diagonal += substitution
            left = min(diagonal, up + 1, left + 1)
            row.append(left)
        rows.append(row)
    return rows


def gold_edges(
    lattice: Lattice,
    source: Tokens,
    hypothesis: Tokens,
    gold: Sequence[Edit],
    max_unchanged_words: int,
) -> Dict[Vertex, List[GoldEdge]]:
    """The edges of the lattice that equal a gold edit, by the vertex where they begin."""
    edges: Dict[Vertex, List[GoldEdge]] = {}
    insertions = [0] * (len(source) + 1)  # gold insertions so far at each position
    for edit in gold:
        rank = 0
        if edit.start == edit.end:
            rank = insertions[edit.start]
            insertions[edit.start] += 1
        for text in {edit.replacement, *edit.alternatives}:
            tokens = text.split()
            if tokens == list(source[edit.start : edit.end]):
                continue  # changes nothing, so nothing can be equal to it
            for j in range(len(hypothesis) - len(tokens) + 1):
                begin, end = (edit.start, j), (edit.end, j + len(tokens))
                if begin not in lattice or tokens != list(hypothesis[j : end[1]]):
                    continue
                unchanged = fewest_unchanged(lattice, source, hypothesis, begin, end)
                if unchanged is not None and unchanged <= max_unchanged_words:
                    edges.setdefault(begin, []).append(GoldEdge(end, rank))
    return edges


def fewest_unchanged(
    lattice: Lattice, source: Tokens, hypothesis: Tokens, begin: Vertex, end: Vertex
) -> Optional[int]:
    """Unchanged tokens between two vertices, at least; None if no path leads there."""
    fewest: Dict[Vertex, int] = {begin: 0}
    for i in range(begin[0], end[0] + 1):
        for j in range(begin[1], end[1] + 1):
            if (i, j) not in fewest:
                continue
            for after in lattice[i, j]:
                number = fewest[i, j] + is_unchanged(source, hypothesis, (i, j), after)
                if after not in fewest or number < fewest[after]:
                    fewest[after] = number
    return fewest.get(end)


def is_unchanged(source: Tokens, hypothesis: Tokens, before: Vertex, after: Vertex) -> bool:
    """Whether a step of the lattice keeps a token as it is."""
    (i, j), (next_i, next_j) = before, after
    return next_i > i and next_j > j and source[i] == hypothesis[j]


def best_path(
    lattice: Lattice,
    source: Tokens,
    hypothesis: Tokens,
    edges: Dict[Vertex, List[GoldEdge]],
    max_unchanged_words: int,
) -> Tuple[int, int]:
    """Edits of the best path that match gold edits, and all its edits.

    A cost is one number that orders paths as the three criteria do, one after the other.
    """
    base = len(source) + len(hypothesis) + 1  # more than a path has steps or edits
    match, step, other_edit = -base * base, base, 1
    costs: Dict[Vertex, Dict[State, int]] = {vertex: {} for vertex in lattice}
    costs[0, 0][State(0, CLOSED)] = 0

    def relax(vertex: Vertex, state: State, cost: int) -> None:
        known = costs[vertex]
        if cost < known.get(state, base**3):
            known[state] = cost

    for vertex, following in lattice.items():
        known = costs[vertex]
        for state, cost in list(known.items()):
            relax(vertex, State(state.passed, CLOSED), cost)  # an edit may end anywhere
        kept = [is_unchanged(source, hypothesis, vertex, after) for after in following]
        for state, cost in known.items():
            for after, keeps in zip(following, kept):
                there = after_step(state, after[0] > vertex[0], keeps, max_unchanged_words)
                if there is not None:
                    begins = state.unchanged == CLOSED != there.unchanged
                    relax(after, there, cost + step + other_edit * begins)
            for edge in edges.get(vertex, ()):
                there = after_match(state, edge.end[0] > vertex[0], edge.rank)
                if there is not None:
                    relax(edge.end, there, cost + match)
    total = min(costs[len(source), len(hypothesis)].values())
    matched = -(total // (base * base))  # what lies above it is positive and less than one match
    return matched, matched + total % base


def after_step(state: State, advances: bool, keeps: bool, most: int) -> Optional[State]:
    """The state behind an alignment step; None where its edit would have too many unchanged tokens.

    Args:
        state: before it.
        advances: whether the step leaves a source token behind.
        keeps: whether it keeps the token as it is.
        most: unchanged tokens that an edit may have.
    """
    passed = 0 if advances else state.passed
    if not keeps:
        return State(passed, max(state.unchanged, 0))
    if state.unchanged == CLOSED:
        return State(passed, CLOSED)
    return State(passed, state.unchanged + 1) if state.unchanged < most else None


def after_match(state: State, advances: bool, rank: int) -> Optional[State]:
    """The state behind an edge that equals a gold edit; None where the edge cannot be taken.

    Args:
        state: before it. No edit may be in progress.
        advances: whether the edit leaves source tokens behind; else it inserts some.
        rank: see :class:`GoldEdge`.
    """
    if state.unchanged != CLOSED or (not advances and rank < state.passed):
        return None
    return State(0 if advances else rank + 1, CLOSED)
