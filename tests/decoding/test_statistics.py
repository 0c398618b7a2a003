"""What a run says about itself when it ends."""

import logging

import pytest

from specdec_plugin.decoding.gate import Paces
from specdec_plugin.methods import registry
from specdec_plugin.methods.build import build_generator
from specdec_plugin.methods.registry import config_class
from tests.support import tiny


@pytest.fixture
def warned(caplog):
    """The warnings of a run over one batch of so many sentences."""

    def run(sentences, decoding, options=None, **flags):
        task, models = tiny.task(), [tiny.model(1)]
        task.cfg = config_class()(decoding=decoding, **flags)
        generator = build_generator(
            task, models, tiny.Namespace(**{"beam": 1, "max_len_b": 12, **(options or {})})
        )
        generator.generate(models, tiny.sample([4] * sentences))
        statistics = generator.statistics
        with caplog.at_level(logging.WARNING, logger="specdec_plugin.decoding"):
            del generator
        return statistics, caplog.text

    return run


def test_a_run_without_drafts_says_why(warned):
    statistics, text = warned(8, "jacobi", draft_rows=2)
    assert statistics.gated == statistics.iterations == statistics.tokens
    assert "batches had 8 sentences, and nothing is drafted while more than 2 of them" in text
    assert "Give --batch-size 2, or --draft-rows 0 to draft always." in text
    assert text.count("Hardly anything") == 1


def test_a_run_with_samples_says_so(warned):
    _, text = warned(2, "jacobi", {"sampling": True, "beam": 5}, draft_rows=1)
    assert (
        "batches had 2 sentences with 5 samples, and nothing is drafted while more than 1" in text
    )
    assert "Give --draft-rows 0 to draft always." in text


@pytest.mark.parametrize(
    "sentences, decoding, flags",
    [(8, "greedy", {}), (8, "jacobi", {"draft_rows": 0}), (1, "jacobi", {"draft_rows": 1})],
)
def test_other_runs_say_nothing(warned, sentences, decoding, flags):
    statistics, text = warned(sentences, decoding, **flags)
    assert statistics.gated == 0 and text == ""
    assert (statistics.batches, statistics.sentences) == (1, sentences)


class Slower:
    """Has measured that drafts do not pay."""

    def see(self, length):
        pass

    def ahead(self):
        return 0

    def begin(self):
        pass

    def choose(self, rows, tokens, drafts=True):
        return 0

    def end(self, tokens):
        pass

    def paces(self):
        return Paces(2000.0, 1500.4)


def test_a_run_whose_drafts_did_not_pay_says_so(warned, monkeypatch):
    monkeypatch.setattr(registry, "Guard", lambda *args, **options: Slower())
    _, text = warned(1, "jacobi")
    assert "drafts did not pay here: 1,500 tokens a second with them, 2,000 without." in text
    assert "may not pay on this machine, even those of a drafter trained for the model." in text
    assert "Give --decoding greedy, another drafter, or --draft-rows 0 to draft always." in text


def test_only_batches_of_several_sentences_can_be_smaller(warned, monkeypatch):
    monkeypatch.setattr(registry, "Guard", lambda *args, **options: Slower())
    _, text = warned(2, "jacobi")
    assert "Give --decoding greedy, smaller batches, another drafter" in text


def test_auto_chooses_to_draft_nothing_without_a_warning(warned, monkeypatch):
    monkeypatch.setattr(registry, "Guard", lambda *args, **options: Slower())
    statistics, text = warned(1, "auto")
    assert statistics.gated == statistics.iterations > 0 and text == ""
