"""Another engine on the same verifier: it says the same, or says that it is missing."""

import importlib
import sys

import pytest
import torch

from specdec_plugin.api import Session, load_session
from specdec_plugin.errors import PluginError
from specdec_plugin.lab.bench.methods import build_method
from specdec_plugin.lab.bench.peers import build_peer
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
