"""What programs give the task beside fairseq's options."""

from argparse import Namespace

import pytest
from fairseq.sequence_scorer import SequenceScorer
from fairseq.tasks.translation import TranslationTask

from specdec_plugin import load_session
from specdec_plugin.tasks.parallel_decoding import ParallelDecodingMixin


@pytest.mark.parametrize("decoding", ["greedy", "beam", None])
def test_symbols_that_are_not_printed(corpus, tiny_verifier, decoding):
    """As by fairseq's generator, beside the end of the sentence."""
    session = load_session(tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es")
    session.task.cfg.decoding = decoding
    extra = {"symbols_to_strip_from_output": {7, 8}}
    made = session.task.build_generator(
        session.models, Namespace(beam=1), extra_gen_cls_kwargs=extra
    )
    assert made.symbols_to_strip_from_output == {made.eos, 7, 8}


def test_a_penalty_of_length_may_be_a_whole_number(corpus, tiny_verifier):
    """The power of a length may be more than whole numbers of tensors hold."""
    session = load_session(tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es")
    session.task.cfg.decoding = None
    (batch,) = session.batches(session.dataset(["one two three"]), 1)
    found = []
    for penalty in (10, 10.0):
        given = Namespace(beam=2, lenpen=penalty, min_len=90, max_len_b=95)
        search = session.task.build_generator(session.models, given)
        found.append(search.generate(session.models, batch)[0][0]["tokens"].tolist())
    assert found[0] == found[1] and len(found[0]) > 90


def test_a_scorer_of_a_task_of_ones_own_stays(corpus, tiny_verifier):
    class Scorer(SequenceScorer):
        pass

    class OwnTask(TranslationTask):
        def build_generator(self, models, args, **more):
            return Scorer(self.target_dictionary)

    class Task(ParallelDecodingMixin, OwnTask):
        pass

    session = load_session(tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es")
    own = session.task
    own.cfg.decoding = "greedy"
    task = Task(own.cfg, own.source_dictionary, own.target_dictionary)
    assert type(task.build_generator(session.models, Namespace(score_reference=True))) is Scorer
