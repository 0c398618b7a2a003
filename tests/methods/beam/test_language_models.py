"""Beam search beside a language model, against fairseq's own."""

from functools import partial

import pytest
import torch
from fairseq.search import DiverseBeamSearch
from hypothesis import given, settings
from hypothesis import strategies as st

from specdec_plugin.decoding.language_model import LanguageModel
from specdec_plugin.decoding.statistics import Statistics
from specdec_plugin.decoding.verifier import Verifier
from specdec_plugin.engine import GraphBackend, NativeBackend, TorchBackend, build_engine
from tests.support import language_models, tiny
from tests.support.language_models import KINDS
from tests.support.nbest import (
    LENGTHS,
    RULES,
    assert_fairseqs_lists,
    assert_same_lists,
    ours,
    reference,
)
from tests.support.search import MODELS

BACKENDS = [NativeBackend(), TorchBackend(), GraphBackend()]
BESIDE = {kind: language_models.model(kind) for kind in KINDS}

rules = st.fixed_dictionaries(
    {
        **RULES,
        "temperature": st.sampled_from([1.0, 0.7]),
        "lm_weight": st.sampled_from([-0.2, 0.3, 1.0]),
    }
)


@pytest.mark.parametrize("backend", BACKENDS, ids=["native", "torch", "graphs"])
@pytest.mark.parametrize("kind", KINDS)
@given(LENGTHS, st.integers(0, 99), st.integers(1, 4), rules, st.integers(1, 2))
@settings(max_examples=8, deadline=None)
def test_lists_are_fairseqs(kind, backend, lengths, seed, beams, options, count):
    """For any language model, by ensembles too."""
    sample, models = tiny.sample(lengths, seed), MODELS[:count]
    given = dict(options, lm_model=BESIDE[kind])
    found = ours(models, sample, beams, backend=backend, **given)
    assert_fairseqs_lists(found, models, sample, beams, **given)


def test_it_is_heard():
    """Lists differ with it, and with its weight."""
    sample = tiny.sample([3, 5, 7], 1)
    found = [
        [[each["tokens"].tolist() for each in row] for row in ours(MODELS[:1], sample, 3, **given)]
        for given in ({}, *({"lm_model": BESIDE["transformer"], "lm_weight": w} for w in (0.5, 2)))
    ]
    assert found[0] != found[1] != found[2] != found[0]


def test_beside_a_strategy():
    sample = tiny.sample([3, 5, 7], 2)
    del sample["id"]
    strategy = partial(DiverseBeamSearch, num_groups=2, diversity_strength=0.7)
    given = dict(strategy=strategy, lm_model=BESIDE["transformer"], lm_weight=0.4, max_len_b=12)
    assert_same_lists(
        ours(MODELS[:1], sample, 4, **given), reference(MODELS[:1], sample, 4, **given)
    )


@pytest.mark.parametrize("backend", [NativeBackend(), TorchBackend()], ids=["native", "torch"])
def test_each_step_computes_its_own_tokens_alone(monkeypatch, backend):
    """fairseq runs the model over the whole output. The kernels do not call it."""
    beside, widths, given = language_models.model(), [], dict(max_len_b=8, min_len=8)
    run = beside.decoder.layers[0].forward

    def watched(inputs, *args, **kwargs):
        widths.append(inputs.size(0))
        return run(inputs, *args, **kwargs)

    monkeypatch.setattr(beside.decoder.layers[0], "forward", watched)
    ours(MODELS[:1], tiny.sample([5]), 3, lm_model=beside, backend=backend, **given)
    assert widths == ([] if isinstance(backend, NativeBackend) else [1] * 9)


@pytest.mark.parametrize("kind, threads", [("transformer", 1), ("lstm", 2)])
def test_threads_where_it_takes_long(threads_again, kind, threads):
    """What fairseq's modules compute of it has all threads, however few symbols there are."""
    torch.set_num_threads(2)
    beside = LanguageModel(BESIDE[kind], 0.5, NativeBackend())
    engines = [build_engine(MODELS[0], backend=NativeBackend())]
    verifier = Verifier(engines, Statistics(), language_model=beside)
    with verifier.on_one_thread(4):
        assert torch.get_num_threads() == threads
