"""MaxMatch: cases counted by hand, and brute force over all ways to read a hypothesis."""

import random
from itertools import product
from typing import Any, Dict, Iterator, List, Sequence, Set, Tuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.lab.gec.m2 import Edit, read_m2
from specdec_plugin.lab.gec.maxmatch import alignment_lattice, count_sentence

Step = Tuple[Tuple[int, int], Tuple[int, int]]


def gold(*edits: Tuple[Any, ...]) -> List[Edit]:
    return [Edit(start, end, text, "", 0, tuple(more)) for start, end, text, *more in edits]


def counts(source: str, hypothesis: str, edits: List[Edit], unchanged: int = 2) -> Any:
    (found,) = count_sentence(source.split(), hypothesis.split(), {0: edits}, unchanged)
    return found


@pytest.mark.parametrize(
    "hypothesis, edits, expected",
    [
        # Nothing done, nothing to do; nothing done, one to do.
        ("he feeds cat every day", gold(), (0, 0, 0)),
        ("he feeds cat every day", gold((2, 3, "cats")), (0, 0, 1)),
        # An article is inserted.  The gold edit is the same, or of the phrase, or has choices.
        ("he feeds the cat every day", gold((2, 2, "the")), (1, 1, 1)),
        ("he feeds the cat every day", gold((2, 3, "the cat")), (1, 1, 1)),
        ("he feeds the cat every day", gold((2, 3, "cats", "a cat", "the cat")), (1, 1, 1)),
        ("he feeds the cat every day", gold((2, 3, "cats", "a cat")), (0, 1, 1)),
        # The tokens around it may belong to the edit, up to two of them.
        ("he feeds the cat every day", gold((1, 3, "feeds the cat")), (1, 1, 1)),
        ("he feeds the cat every day", gold((1, 4, "feeds the cat every")), (0, 1, 1)),
        # Two changes side by side: two gold edits, one, or none of them.
        ("he feeds dogs each day", gold((2, 3, "dogs"), (3, 4, "each")), (2, 2, 2)),
        ("he feeds dogs each day", gold((2, 4, "dogs each")), (1, 1, 1)),
        ("he feeds dogs each day", gold((2, 3, "dogs")), (1, 2, 1)),
        ("he feeds dogs each day", gold((2, 3, "mice")), (0, 1, 1)),
        # Two changes with two tokens between them are one edit, with three they are two.
        ("she feeds cat each day", gold(), (0, 1, 0)),
        ("she feeds cat every night", gold(), (0, 2, 0)),
        # A deletion, and everything replaced.
        ("feeds cat every day", gold((0, 1, "")), (1, 1, 1)),
        ("w x y z", gold((0, 5, "w x y z")), (1, 1, 1)),
        ("", gold((0, 5, "")), (1, 1, 1)),
        # A gold edit that changes nothing counts as one, and cannot be matched.
        ("he feeds the cat every day", gold((2, 2, "the"), (4, 5, "day")), (1, 1, 2)),
    ],
)
def test_counted_by_hand(
    hypothesis: str, edits: List[Edit], expected: Tuple[int, int, int]
) -> None:
    assert counts("he feeds cat every day", hypothesis, edits) == expected


def test_insertions_at_one_place() -> None:
    """Each gold edit matches once, in the order in which both sides have them."""
    assert counts("a b", "a x x b", gold((1, 1, "x"))) == (1, 2, 1)
    assert counts("a b", "a x x b", gold((1, 1, "x"), (1, 1, "x"))) == (2, 2, 2)
    assert counts("a b", "a x y b", gold((1, 1, "x"), (1, 1, "y"))) == (2, 2, 2)
    assert counts("a b", "a y x b", gold((1, 1, "x"), (1, 1, "y"))) == (1, 2, 2)
    assert counts("a b", "x a x b", gold((0, 0, "x"), (1, 1, "x"))) == (2, 2, 2)


def test_unchanged_words_of_an_edit() -> None:
    """How many may lie between two changes that count as one edit."""
    source, hypothesis = "a b c d e", "x b c d y"
    assert [counts(source, hypothesis, [], most)[1] for most in range(4)] == [2, 2, 2, 1]
    whole = gold((0, 5, hypothesis))
    assert [counts(source, hypothesis, whole, most)[0] for most in range(4)] == [0, 0, 0, 1]


def test_empty_sentences() -> None:
    assert count_sentence([], [], {}) == [(0, 0, 0)]
    assert count_sentence([], ["a"], {0: gold((0, 0, "a"))}) == [(1, 1, 1)]
    assert count_sentence(["a"], [], {0: []}) == [(0, 1, 0)]


def test_annotators_come_in_order_of_their_numbers() -> None:
    annotated = """S the mice runs
A 2 3|||SVA|||run|||REQUIRED|||-NONE-|||3
A -1 -1|||noop|||-NONE-|||REQUIRED|||-NONE-|||1
A 1 2|||NN|||mouse||rat|||REQUIRED|||-NONE-|||2
A 0 1|||DT|||-NONE-|||REQUIRED|||-NONE-|||2"""
    ((source, annotations),) = read_m2(annotated.split("\n"), "some.m2")
    assert count_sentence(source, "the rat runs".split(), annotations) == [
        (0, 1, 0),
        (1, 1, 2),
        (0, 1, 1),
    ]


def test_long_rewritten_sentences_take_no_time() -> None:
    """No token in common: 6,561 vertices; the paper's graph has millions of edges."""
    source, hypothesis = [f"s{i}" for i in range(80)], [f"h{i}" for i in range(80)]
    edits = gold((0, 1, "h0"), (40, 42, "h40 h41"), (60, 60, "h60 h61"))
    assert count_sentence(source, hypothesis, {0: edits}) == [(3, 6, 3)]


# Brute force: everything below enumerates instead of searching.


def alignments(source: str, hypothesis: str, i: int = 0, j: int = 0) -> Iterator[List[Step]]:
    """All ways to turn one into the other step by step."""
    if (i, j) == (len(source), len(hypothesis)):
        yield []
    for di, dj in ((1, 0), (0, 1), (1, 1)):
        if i + di <= len(source) and j + dj <= len(hypothesis):
            for rest in alignments(source, hypothesis, i + di, j + dj):
                yield [((i, j), (i + di, j + dj)), *rest]


def unchanged(source: str, hypothesis: str, step: Step) -> bool:
    (i, j), after = step
    return after == (i + 1, j + 1) and source[i] == hypothesis[j]


def lattice_steps(source: str, hypothesis: str) -> Set[Step]:
    """The steps of all cheapest alignments, for both costs of a substitution."""
    steps: Set[Step] = set()
    for substitution in (1, 2):

        def cost(step: Step, substitution: int = substitution) -> int:
            (i, j), after = step
            if unchanged(source, hypothesis, step):
                return 0
            return substitution if after == (i + 1, j + 1) else 1

        ways = list(alignments(source, hypothesis))
        least = min(sum(map(cost, way)) for way in ways)
        steps.update(step for way in ways if sum(map(cost, way)) == least for step in way)
    return steps


def segmentations(path: List[Step]) -> Iterator[List[List[Step]]]:
    for cuts in product((False, True), repeat=max(len(path) - 1, 0)):
        segments = [path[:1]]
        for cut, step in zip(cuts, path[1:], strict=True):
            if cut:
                segments.append([step])
            else:
                segments[-1].append(step)
        yield segments


def assignments(
    segments: List[Tuple[int, int, str]], edits: Sequence[Edit], source: str
) -> Iterator[Set[int]]:
    """All sets of segments that gold edits can match: each once, insertions in order."""
    if not segments:
        yield set()
        return
    *before, (start, end, text) = segments
    here = len(before)
    yield from assignments(before, edits, source)
    for number, edit in enumerate(edits):
        same = (edit.start, edit.end) == (start, end) and source[start:end] != text
        if same and text in [t.replace(" ", "") for t in (edit.replacement, *edit.alternatives)]:
            left = [
                other
                for position, other in enumerate(edits)
                if (other.start, other.end) != (start, end) or position < number
            ]
            yield from ({here, *rest} for rest in assignments(before, left, source))


def by_brute_force(
    source: str, hypothesis: str, edits: Sequence[Edit], most: int
) -> Tuple[int, int]:
    steps = lattice_steps(source, hypothesis)
    best = None
    for path in alignments(source, hypothesis):
        if not steps.issuperset(path):
            continue
        for segments in segmentations(path):
            kept = [[unchanged(source, hypothesis, step) for step in each] for each in segments]
            if any(sum(each) > most if not all(each) else len(each) > 1 for each in kept):
                continue
            changing = [
                each for each, same in zip(segments, kept, strict=True) if each and not all(same)
            ]
            spans = [
                (each[0][0][0], each[-1][1][0], hypothesis[each[0][0][1] : each[-1][1][1]])
                for each in changing
            ]
            for matched in assignments(spans, edits, source):
                inside = sum(len(changing[number]) for number in matched)
                others = len(changing) - len(matched)
                key = (-len(matched), len(path) - inside, others)
                best = key if best is None else min(best, key)
    assert best is not None
    return -best[0], best[2] - best[0]


@st.composite
def cases(draw: Any) -> Tuple[str, str, List[Edit], int]:
    """Short strings, and gold edits that often say what the hypothesis does."""
    source, hypothesis = (draw(st.text("abc", max_size=4)) for _ in range(2))
    edits: List[Edit] = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(source)))
        end = draw(st.integers(start, min(len(source), start + 3)))
        texts = []
        for _ in range(draw(st.integers(1, 2))):
            first = draw(st.integers(0, len(hypothesis)))
            last = draw(st.integers(first, min(len(hypothesis), first + 3)))
            texts.append(" ".join(hypothesis[first:last]))
        edits.append(Edit(start, end, texts[0], "", 0, tuple(texts[1:])))
    return source, hypothesis, edits, draw(st.integers(0, 3))


@settings(max_examples=250)
@given(cases())
def test_equals_brute_force(case: Tuple[str, str, List[Edit], int]) -> None:
    source, hypothesis, edits, most = case
    ((matched, proposed, total),) = count_sentence(list(source), list(hypothesis), {0: edits}, most)
    assert (matched, proposed) == by_brute_force(source, hypothesis, edits, most)
    assert total == len(edits)


@settings(max_examples=100)
@given(st.text("abc", max_size=5), st.text("abc", max_size=5))
def test_lattice_is_all_cheapest_alignments(source: str, hypothesis: str) -> None:
    lattice = alignment_lattice(list(source), list(hypothesis))
    found = {(before, after) for before, following in lattice.items() for after in following}
    assert found == lattice_steps(source, hypothesis)
    seen: Dict[Tuple[int, int], None] = {}
    for vertex, following in lattice.items():
        seen[vertex] = None
        assert seen.keys().isdisjoint(following)  # topological order


def test_a_hypothesis_made_with_the_gold_edits_is_perfect() -> None:
    """With alternatives, many edits, and repeated words, so that alignments are ambiguous."""
    generator = random.Random(5)
    for _ in range(30):
        source, hypothesis, edits = [], [], []
        for _ in range(8):
            kept = generator.choices("abcd", k=generator.randint(3, 6))
            old, new = generator.choices("abcd", k=generator.randint(0, 1)), generator.choice("xyz")
            source += kept
            edits.append(Edit(len(source), len(source) + len(old), "w", "", 0, (new,)))
            source += old
            hypothesis += [*kept, new]
        assert count_sentence(source, hypothesis, {0: edits}) == [(8, 8, 8)]
