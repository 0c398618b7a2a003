"""The decisions of fairseq's beam search about a hypothesis."""

import pytest
import torch

from specdec_plugin import load_session
from specdec_plugin.lab.check.beams import Step, _decisions, closest_decision, recorded

EOS = 2


#: Two beams: 4 and 5 begin, and 6 nearly does; then 4 8 and 5 2 are best.
STEPS = [
    Step([[], []], [-1.0, -1.5, -1.5001, -3.0], [4, 5, 6, 7], [0, 0, 0, 0]),
    Step([[4], [5]], [-2.0, -2.2, -2.5, -2.9], [8, EOS, 9, 9], [0, 1, 1, 0]),
    Step([[4, 8], [5, 9]], [-2.6, -2.7, -3.7, -4.0], [EOS, EOS, 9, 9], [0, 1, 1, 0]),
]


class Search:
    """Stands for a translator whose search takes :data:`STEPS`."""

    def __init__(self):
        self.generator = self.search = self
        self.eos = EOS

    def step(self, number, lprobs, scores, fed):
        return [torch.tensor([each]) for each in STEPS[number][1:]]

    def decode(self, batch):
        for number, each in enumerate(STEPS):
            fed = torch.tensor([[EOS, *line] for line in each.lines])
            self.step(number, None, None, fed)


@pytest.mark.parametrize(
    "tokens, step, kept, dropped",
    [
        ([4, 8, EOS], 0, -1.0, -1.5001),
        ([5, 9, EOS], 0, -1.5, -1.5001),
        ([6, EOS], 0, -1.5, -1.5001),
        ([4, 9, EOS], 1, -2.5, -2.9),
    ],
)
def test_the_closest_decision_is_told(tokens, step, kept, dropped):
    found = closest_decision(Search(), None, [tokens])
    assert found == {"step": step, "kept": pytest.approx(kept), "dropped": pytest.approx(dropped)}
    both = closest_decision(Search(), None, [[4, 8, EOS], tokens])
    assert both["kept"] - both["dropped"] <= found["kept"] - found["dropped"]


def test_an_end_competes_with_all_candidates():
    decisions = _decisions(STEPS, [5, EOS], EOS)
    assert decisions[1] == {"step": 1, "kept": -2.2, "dropped": -2.5}
    assert _decisions(STEPS, [5, 9], EOS)[1] == {"step": 1, "kept": -2.5, "dropped": -2.9}


def test_without_candidates_there_is_no_decision():
    assert closest_decision(Search(), None, [[9, EOS]]) is None
    assert closest_decision(Search(), None, [[], []]) is None


def test_steps_are_those_of_fairseqs_search(corpus, tiny_verifier):
    session = load_session(tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es")
    (batch, *_) = session.batches(session.dataset(["one two three"]), 1)

    def search(beam):
        return session.translator(None, beam=beam, max_len_b=20)

    few, many = (search(beam).decode(batch)[0] for beam in (3, 6))
    steps = recorded(search(3), batch)
    assert all(len(each.lines) == 3 and len(each.totals) == 6 for each in steps)
    kept = [each["tokens"].tolist() for each in few]
    for hypothesis in few:
        tokens = hypothesis["tokens"].tolist()
        ends = [
            total
            for total, token, beam in zip(*steps[len(tokens) - 1][1:], strict=True)
            if token == EOS and steps[len(tokens) - 1].lines[beam] == tokens[:-1]
        ]
        assert ends == [pytest.approx(float(hypothesis["positional_scores"].sum()), abs=1e-4)]
        decision = closest_decision(search(3), batch, [tokens])
        assert decision["kept"] >= decision["dropped"]
    others = [each["tokens"].tolist() for each in many]
    assert any(tokens not in kept for tokens in others)
