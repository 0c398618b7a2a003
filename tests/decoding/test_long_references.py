"""References behind a table of positions: fairseq's scores of their beginnings."""

import logging

import pytest
import torch
from fairseq.sequence_scorer import SequenceScorer

from specdec_plugin.decoding.long_references import LongReferences
from specdec_plugin.engine import TorchBackend
from specdec_plugin.methods.build import build_scorer
from tests.decoding.test_scoring import EOS, PAD, check, with_targets
from tests.support import tiny
from tests.support.search import SYMBOLS

LEARNED = tiny.model(1, max_target_positions=5, decoder_learned_pos=True)


def scorers():
    fairseqs = SequenceScorer(SYMBOLS)
    return fairseqs, build_scorer(tiny.task(SYMBOLS), [LEARNED], fairseqs, TorchBackend())


def beginning(target, most):
    """A target of at most so many symbols, the last of which ends it."""
    words = [symbol for symbol in target.tolist() if symbol not in (PAD, EOS)]
    return [*words[: most - 1], EOS]


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("scorer", scorers(), ids=["fairseq", "ours"])
def test_beginnings_are_scored(scorer, left, caplog):
    lengths = [(3, 9), (2, 1), (4, 4), (3, 5), (2, 0)]
    sample = {**with_targets(lengths, 3, left), "id": torch.tensor([7, 1, 2, 11, 3])}
    before = sample["target"].clone()
    ours = LongReferences.around(scorer, [LEARNED], PAD)
    with caplog.at_level(logging.WARNING):
        found = ours.generate([LEARNED], sample)
    assert torch.equal(sample["target"], before)
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        f"line {line}: the reference has {length} symbols and the model takes 5; the score is that "
        "of its beginning."
        for line, length in ((8, 10), (12, 6))
    ]
    rows = [beginning(each, 5) for each in sample["target"]]
    sources = [source for source, _ in lengths]
    short = with_targets([(sources[row], len(line) - 1) for row, line in enumerate(rows)], 3)
    for row, line in enumerate(rows):
        short["target"][row, : len(line)] = torch.tensor(line)
        short["net_input"]["prev_output_tokens"][row, 1 : len(line)] = torch.tensor(line[:-1])
    check(found, SequenceScorer(SYMBOLS).generate([LEARNED], short))
    assert [len(each["tokens"]) for (each,) in found] == [5, 2, 5, 5, 1]


def test_what_the_models_take_is_not_changed(caplog):
    fairseqs, ours = scorers()
    around = LongReferences.around(ours, [tiny.model(1), LEARNED], PAD)
    assert around.eos == ours.eos
    assert around.symbols_to_strip_from_output == fairseqs.symbols_to_strip_from_output
    sample = with_targets([(3, 4), (2, 1)], 1)
    check(around.generate([LEARNED], sample), fairseqs.generate([LEARNED], sample))
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    sample["target"] = None
    given = torch.tensor([[5, 6, EOS], [7, EOS, PAD]])
    ((one,), (other,)) = around.generate([LEARNED], sample, prefix_tokens=given)
    assert (one["tokens"].tolist(), other["tokens"].tolist()) == ([5, 6, EOS], [7, EOS])


def test_computed_positions_have_no_end():
    fairseqs, _ = scorers()
    assert LongReferences.around(fairseqs, [tiny.model(1), tiny.model(2)], PAD) is fairseqs
