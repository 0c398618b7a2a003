"""Whatever is fed, rolled back and dropped: the accepted tokens alone decide."""

import functools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.engine import build_engine
from tests.support.architectures import VOCABULARY, build_model, encode, full_logits, logits_of

MODELS = {
    "transformer": ("transformer", {}),
    "pre-norm": ("transformer", {"decoder_normalize_before": True, "decoder_learned_pos": True}),
    "lstm": ("lstm", {}),
    "fconv": ("fconv", {}),
}
ROWS = 3


@functools.cache
def model_of(name):
    arch, options = MODELS[name]
    torch.manual_seed(1)
    return build_model(arch, **options)


def check_new_logits(model, encoder_out, rows, texts, new, logits):
    """``logits`` of each row's new tokens against fairseq on that row's text alone."""
    for place, row in enumerate(rows):
        text = torch.tensor([texts[row] + new[place].tolist()])
        order = torch.tensor([row])
        alone = model.encoder.reorder_encoder_out(dict_or_tuple(encoder_out), order)
        expected = full_logits(model, text, alone)[0, len(texts[row]) :]
        torch.testing.assert_close(
            logits[place].log_softmax(-1), expected.log_softmax(-1), atol=1e-5, rtol=1e-5
        )


def dict_or_tuple(encoder_out):
    return dict(encoder_out) if isinstance(encoder_out, dict) else encoder_out


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=40, derandomize=True)
@given(data=st.data())
def test_only_accepted_tokens_count(name, data, backend):
    model = model_of(name)
    torch.manual_seed(data.draw(st.integers(0, 99)))
    encoder_out = encode(model)
    engine = build_engine(model, backend=backend)
    state = engine.start(encoder_out, data.draw(st.integers(1, 12)))
    rows, texts = list(range(ROWS)), [[] for _ in range(ROWS)]
    for _ in range(data.draw(st.integers(1, 5))):
        width = data.draw(st.integers(1, 5))
        new = torch.randint(4, VOCABULARY, (len(rows), width))
        logits = logits_of(engine, state, new)
        assert logits.shape == (len(rows), width, VOCABULARY)
        check_new_logits(model, encoder_out, rows, texts, new, logits)
        for place, row in enumerate(rows):
            kept = data.draw(st.integers(-len(texts[row]), width))  # negative: roll further back
            texts[row] = texts[row][:kept] if kept < 0 else texts[row] + new[place, :kept].tolist()
        lengths = [len(texts[row]) for row in rows]
        slack = 0 if len(rows) == 1 else data.draw(st.integers(0, 2))
        state.keep(torch.tensor(lengths), max(lengths) + slack)
        places = data.draw(st.lists(st.sampled_from(range(len(rows))), min_size=1, unique=True))
        if len(places) < len(rows) or data.draw(st.booleans()):
            state.select(torch.tensor(places))
            rows = [rows[place] for place in places]
        assert state.lengths.tolist() == [len(texts[row]) for row in rows]
