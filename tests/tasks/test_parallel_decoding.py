"""What programs give the task beside fairseq's options."""

from argparse import Namespace

import pytest

from specdec_plugin import load_session


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
