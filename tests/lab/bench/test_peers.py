"""Another engine on the same verifier: it says the same, or says that it is missing."""

import importlib
import sys
from argparse import Namespace

import pytest
import torch

from specdec_plugin.api import Session, load_session
from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.methods import build_method
from specdec_plugin.lab.bench.peers import PEERS, CTranslate2Generator, build_peer
from specdec_plugin.lab.bench.timing import batches_by_size, decode


@pytest.fixture
def session(corpus, tiny_verifier):
    found = load_session(tiny_verifier, corpus.data_dir, source_lang="en", target_lang="es")
    found.split("test")
    return found


def tokens(session, method, batches):
    return [
        hypotheses[0]["tokens"].tolist()
        for batch in batches
        for hypotheses in decode(session, method, batch)
    ]


@pytest.mark.parametrize("limits", [{"max_len_b": 20}, {"max_len_a": 0.5, "max_len_b": 2}])
def test_ctranslate2_says_what_fairseq_says(session, limits):
    pytest.importorskip("ctranslate2")
    peer = build_peer(session, "ctranslate2", limits)
    greedy = build_method(session, "fairseq beam 1", {}, limits)
    batches = batches_by_size(session, session.task.dataset("test"), [4])[4]
    assert tokens(session, peer, batches) == tokens(session, greedy, batches)


@pytest.mark.parametrize("name", PEERS)
def test_the_sessions_model_stays_as_it_is(session, name):
    pytest.importorskip("ctranslate2")
    before = [each.clone() for each in session.models[0].parameters()]
    build_peer(session, name, {"max_len_b": 20})
    for mine, each in zip(before, session.models[0].parameters(), strict=True):
        assert torch.equal(mine, each)


SAMPLED = {"sampling": True, "sampling_topk": -1, "sampling_topp": -1.0, "temperature": 0.7}


@pytest.mark.parametrize(
    "generation, beam, options",
    [
        ({}, 1, {"beam_size": 1}),
        ({}, 5, {"beam_size": 5}),
        (SAMPLED, 1, {"sampling_topk": 0, "sampling_topp": 1, "sampling_temperature": 0.7}),
        ({**SAMPLED, "sampling_topk": 3}, 1, {"sampling_topk": 3, "sampling_topp": 1}),
        ({**SAMPLED, "sampling_topp": 0.9}, 1, {"sampling_topk": 0, "sampling_topp": 0.9}),
    ],
)
def test_ctranslate2_is_asked_for_the_same_search(session, generation, beam, options):
    asked = {}

    class Translator:
        def translate_batch(self, lines, **options):
            asked.update(options)
            return [Namespace(hypotheses=[["uno"]]) for _ in lines]

    peer = CTranslate2Generator(Translator(), session, {"max_len_b": 20, **generation}, beam)
    (batch,) = batches_by_size(session, session.task.dataset("test"), [21])[21]
    dictionary = session.task.target_dictionary
    for (hypothesis,) in peer.generate(None, batch):
        assert hypothesis["tokens"].tolist() == [dictionary.index("uno"), dictionary.eos()]
    assert asked.items() >= {"max_decoding_length": 20, **options}.items()
    assert peer.beam_size == beam


def test_a_missing_library_is_told(session):
    """CTranslate2 looks for those of CUDA when it decodes first."""

    class Translator:
        def translate_batch(self, lines, **options):
            raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")

    peer = CTranslate2Generator(Translator(), session, {"max_len_b": 20})
    words = r"cannot decode here: Library libcublas.so.12 is not found.* leave --peer out"
    with pytest.raises(PluginError, match=words):
        peer.attempt()


def test_a_missing_package_is_told(session, monkeypatch):
    monkeypatch.setitem(sys.modules, "ctranslate2", None)  # as if it were not installed
    with pytest.raises(ImportError):
        importlib.import_module("ctranslate2")
    with pytest.raises(PluginError, match=r"pip install 'specdec-plugin\[peers\]'"):
        build_peer(session, "ctranslate2", {})


def test_what_it_cannot_run_is_told(session, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", lambda name: None)
    two = Session(session.task, [*session.models, *session.models])
    with pytest.raises(PluginError, match="--path names several"):
        build_peer(two, "ctranslate2", {})
    session.models[0].decoder.embed_positions = None
    with pytest.raises(PluginError, match="no positions"):
        build_peer(session, "ctranslate2", {})
    session.models[0].encoder = torch.nn.Linear(2, 2)
    with pytest.raises(PluginError, match="not a Transformer"):
        build_peer(session, "ctranslate2", {})
