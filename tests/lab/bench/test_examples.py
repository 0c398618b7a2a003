"""Examples against histories made by hand."""

import pytest
import torch

from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.lab.bench.examples import (
    EXAMPLES_NOTE,
    Segment,
    chosen,
    drafting,
    examples_tables,
    marked,
    segments,
)
from specdec_plugin.lab.bench.methods import Method
from specdec_plugin.lab.history import Step, steps_of

#: The paper's first corrected example (Table 2), cut short; numbers stand for tokens.
WORDS = ["⏎", "▁Because", "▁that", "▁the", "▁birth", "▁rate", "s", "▁fall", "."]
HISTORY = [
    [1, 2, 3, 4], [1, 3],  # Because that the birth -> Because the
    [], [4],  # birth
    [5, 6, 7, 8, 0], [5, 6, 7, 8, 0],  # rates fall.
]  # fmt: skip


def read(tokens):
    words = " ⏎" if tokens[-1:] == [0] else ""
    return "".join(WORDS[each] for each in tokens if each).replace("▁", " ").strip() + words


def test_segments_of_a_sentence():
    steps = steps_of([torch.tensor(each).long() for each in HISTORY])
    assert [step.kept for step in steps] == [1, 0, 5]
    assert segments(steps, read) == [
        Segment("Because", " the"),
        Segment("", " birth"),
        Segment(" rates fall. ⏎", ""),
    ]
    within = [Step([5], [5, 6]), Step([], [7]), Step([], [8, 0])]
    assert segments(within, read)[0] == Segment("rate", "s")
    assert marked(segments(within, read)) == "[<b>rate</b>s]₀ [fall]₁[. ⏎]₂"


def test_marks():
    steps = steps_of([torch.tensor(each).long() for each in HISTORY])
    assert marked(segments(steps, read)) == (
        "[<b>Because</b> the]₀ [birth]₁ [<b>rates fall. ⏎</b>]₂"
    )
    assert marked([Segment("", "a|b"), Segment("*", " <b> [x]"), Segment("", "\\_`~")]) == (
        r"[a\|b]₀[<b>\*</b> &lt;b&gt; \[x\]]₁[\\\_\`\~]₂"
    )
    assert marked([Segment("", " a")] * 12).endswith(" [a]₉ [a]₁₀ [a]₁₁")


def row(method, ratio, output, **more):
    return {"method": method, "sentence": 3, "edit ratio": ratio, "speed-up over greedy": 2.34,
            "iterations": len(output), "source": "a | b", "output": output, **more}  # fmt: skip


def test_a_table_for_each_method():
    guided = row("input-guided", 0.125, [{"drafted": "a", "own": " c"}, {"drafted": "", "own": ""}])
    text = examples_tables([guided, row("specdec", 0.0, [{"drafted": "", "own": "c"}])])
    lines = text.split("\n\n")
    assert lines[0].splitlines() == [
        "| × greedy | edit ratio | iterations | source | output of input-guided |",
        "| ---: | ---: | ---: | :--- | :--- |",
        r"| 2.3 | 0.12 | 2 | a \| b | [<b>a</b> c]₀[]₁ |",
    ]
    assert "output of specdec" in lines[1] and "| 0.00 | 1 | a" in lines[1]
    assert lines[2] == EXAMPLES_NOTE


@pytest.mark.parametrize(
    "count, places",
    [
        (1, [4]),
        (3, [4, 2, 3]),
        (4, [1, 6, 2, 3]),
        (7, [0, 1, 4, 6, 2, 5, 3]),
        (50, [0, 1, 4, 6, 2, 5, 3]),
        (0, []),
    ],
)
def test_examples_are_spread_over_edit_ratios(count, places):
    ratios = [0.0, 0.0, 0.1, 0.9, 0.0, 0.5, 0.0]
    assert chosen(ratios, count) == places


def test_who_drafts():
    greedy, guided = Statistics(), Statistics()
    greedy.count([0], [0], [1])
    guided.count([0, 3], [0, 1], [1, 2])
    methods = [Method("fairseq beam 1", None, None), Method("greedy", None, greedy)]
    methods.append(Method("input-guided", None, guided))
    assert [each.name for each in drafting(methods)] == ["input-guided"]
